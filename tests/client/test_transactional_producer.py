from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from broker.client.cluster import Cluster
from broker.client.group_offsets import Membership, OffsetAndMetadata
from broker.client.producer import Producer, ProducerSettings
from broker.client.transactional_producer import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalProducer,
    TransactionStateError,
    TransactionStatus,
)
from broker.errors import ConfigurationError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.types import Buffer, TopicPartition
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.produce import ProduceRequest, ProduceResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.client.peers import serving
from tests.client.running import QUICK, run, until
from tests.client.test_producer import CONNECTIONS, SETTINGS
from tests.client.transaction_peers import CoordinatingPeer

TRANSACTIONAL = replace(SETTINGS, transactional_id="mover")
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def transacting(
    settings: ProducerSettings = TRANSACTIONAL,
) -> AsyncIterator[tuple[TransactionalProducer, CoordinatingPeer]]:
    """An initialized producer, and the node that it writes to and that coordinates it."""
    peer = CoordinatingPeer()
    async with (
        serving([peer], partitions=2) as scripted,
        Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
        TransactionalProducer(cluster, settings=settings, backoff=QUICK) as producer,
    ):
        await producer.init_transactions()
        yield producer, peer


def codes(request: type, *answers: ErrorCode):  # type: ignore[no-untyped-def]
    """Refuses such requests with these codes, one after the other, then no more."""
    left = iter(answers)
    return lambda asked: next(left, ErrorCode.NONE) if asked is request else ErrorCode.NONE


def test_partitions_are_added_before_they_are_written_and_once_a_transaction() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            for number in range(2):
                async with producer.transaction():
                    for place in range(4):
                        await producer.send("t", b"%d%d" % (number, place), partition=place % 2)
            assert peer.story == ["epoch 0", "add t-0 t-1", "commit", "add t-0 t-1", "commit"]
            assert peer.log("t", 1).values == [b"01", b"03", b"11", b"13"]
            assert {request.transactional_id for request in peer.seen(ProduceRequest)} == {"mover"}

    run(main)


def test_an_empty_transaction_is_ended_without_the_coordinator() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            async with producer.transaction():
                pass
            producer.begin_transaction()
            await producer.abort_transaction()
            assert peer.story == ["epoch 0"]

    run(main)


def test_what_helps_is_repeated_everywhere() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            for request in (AddPartitionsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest):
                peer.refusals = codes(
                    request,
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                )
                async with producer.transaction():
                    await producer.send("t", b"v", partition=0)
                    await producer.send_offsets_to_transaction({B: OffsetAndMetadata(offset=5)}, "g")
            once = ["add t-0", "add g", "g at 5", "commit"]
            assert sorted(peer.story) == sorted(["epoch 0", *once * 3])
            assert [told for told in peer.story if told == "commit"] == peer.story[4::4]

    run(main)


def test_an_abort_gives_up_what_is_buffered_and_goes_on_under_a_new_epoch() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            producer.begin_transaction()
            await (await producer.send("t", b"a", partition=0))
            given_up = await producer.send("t", b"b", partition=0)
            await producer.abort_transaction()
            with pytest.raises(TransactionAbortableError, match="aborted before this was written"):
                await given_up
            async with producer.transaction():
                await producer.send("t", b"c", partition=0)
            assert peer.story == ["epoch 0", "add t-0", "abort", "epoch 1", "add t-0", "commit"]
            assert peer.log("t", 0).values == [b"a", b"c"]

    run(main)


def test_what_is_no_record_is_refused_and_no_part_of_the_transaction() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            producer.begin_transaction()
            with pytest.raises(TypeError):
                await producer.send("t", "text", partition=0)
            await producer.commit_transaction()
            assert peer.story == ["epoch 0"]

    run(main)


def test_a_partition_that_was_ready_when_its_transaction_was_aborted_is_written_in_the_next_one() -> None:
    async def main() -> None:
        async with transacting(replace(TRANSACTIONAL, linger_ms=0)) as (producer, peer):
            producer.begin_transaction()
            await (await producer.send("t", b"a", partition=0))
            await producer.send("t", b"b", partition=0)
            await asyncio.sleep(0)  # due by now, and listed for its node
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("t", b"c", partition=0)
            assert peer.log("t", 0).values[-1] == b"c"

    run(main)


def test_an_abort_waits_for_what_is_in_flight() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with transacting() as (producer, peer):

            async def gated(request: ProduceRequest) -> ProduceResponse | None:
                await gate.wait()
                return peer.produce(request)

            producer.begin_transaction()
            await (await producer.send("t", b"a", partition=0))
            peer.on(ProduceRequest, gated)
            on_its_way = await producer.send("t", b"b", partition=0)
            await until(lambda: producer.metrics.requests_in_flight > 0)
            aborting = asyncio.create_task(producer.abort_transaction())
            await asyncio.sleep(0)
            assert "abort" not in peer.story
            gate.set()
            await aborting
            assert (await on_its_way).offset == 1
            assert peer.story[-2:] == ["abort", "epoch 1"]

    run(main)


def test_a_batch_that_is_refused_leaves_the_transaction_to_be_aborted() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            verify = peer.trouble
            peer.trouble = lambda partition, batch: (
                ErrorCode.MESSAGE_TOO_LARGE if partition == A else verify(partition, batch)
            )
            producer.begin_transaction()
            await producer.send("t", b"a", partition=0)
            with pytest.raises(
                TransactionAbortableError, match="to be aborted, because of MESSAGE_TOO_LARGE"
            ):
                await producer.commit_transaction()
            with pytest.raises(TransactionAbortableError):
                await producer.send("t", b"b", partition=1)
            await producer.abort_transaction()
            peer.trouble = verify
            async with producer.transaction():
                await producer.send("t", b"c", partition=0)
            assert peer.log("t", 0).values == [b"c"]
            assert peer.story == ["epoch 0", "add t-0", "abort", "epoch 1", "add t-0", "commit"]

    run(main)


def test_a_partition_that_may_not_be_written_fails_the_transaction_and_its_sends() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            peer.refuse_partition = lambda partition: (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if partition == B else ErrorCode.NONE
            )
            producer.begin_transaction()
            deliveries = [await producer.send("t", b"v", partition=number) for number in range(2)]
            for delivery in deliveries:
                with pytest.raises(TransactionAbortableError, match="TOPIC_AUTHORIZATION_FAILED: t-1"):
                    await delivery
            await producer.abort_transaction()
            assert peer.story == ["epoch 0"]

    run(main)


@pytest.mark.parametrize("request_type", [AddPartitionsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest])
def test_a_fenced_producer_can_only_be_closed(request_type: type) -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            producer.begin_transaction()
            peer.refusals = codes(request_type, ErrorCode.INVALID_PRODUCER_EPOCH)

            async def write_and_commit() -> None:
                delivery = await producer.send("t", b"v", partition=0)
                await producer.flush()
                assert delivery.done()
                await producer.send_offsets_to_transaction({B: OffsetAndMetadata(offset=5)}, "g")
                await producer.commit_transaction()

            with pytest.raises(ProducerFencedError):
                await write_and_commit()
            assert producer.status is TransactionStatus.DEAD
            with pytest.raises(ProducerFencedError):
                await producer.send("t", b"v")
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()

    run(main)


def test_a_commit_that_was_not_answered_in_time_may_be_repeated() -> None:
    async def main() -> None:
        async with transacting(replace(TRANSACTIONAL, max_block_ms=30)) as (producer, peer):
            producer.begin_transaction()
            await (await producer.send("t", b"v", partition=0))
            peer.refusals = lambda request: (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if request is EndTxnRequest else ErrorCode.NONE
            )
            with pytest.raises(ProtocolError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                await producer.commit_transaction()
            with pytest.raises(TransactionStateError, match="cannot abort while committing"):
                await producer.abort_transaction()
            peer.refusals = lambda request: ErrorCode.NONE
            await producer.commit_transaction()
            assert peer.story[-1] == "commit"

    run(main)


def test_when_it_is_unknown_whether_partitions_were_added_the_next_epoch_ends_them() -> None:
    async def main() -> None:
        async with transacting(replace(TRANSACTIONAL, max_block_ms=30)) as (producer, peer):
            peer.refusals = lambda request: (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if request is AddPartitionsToTxnRequest
                else ErrorCode.NONE
            )
            producer.begin_transaction()
            with pytest.raises(TransactionAbortableError):
                await (await producer.send("t", b"v", partition=0))
            await producer.abort_transaction()
            assert peer.story == ["epoch 0", "epoch 1"]

    run(main)


def test_positions_go_with_the_membership_that_read_them() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            member = Membership(member_id="m", generation=3, instance_id="i")
            async with producer.transaction():
                await producer.send_offsets_to_transaction({A: OffsetAndMetadata(offset=5)}, "g", member)
                await producer.send_offsets_to_transaction({}, "g", member)
            (request,) = peer.seen(TxnOffsetCommitRequest)
            assert (request.member_id, request.generation_id, request.group_instance_id) == ("m", 3, "i")
            assert peer.story == ["epoch 0", "add g", "g at 5", "commit"]
            producer.begin_transaction()
            peer.refusals = codes(TxnOffsetCommitRequest, ErrorCode.ILLEGAL_GENERATION)
            with pytest.raises(TransactionAbortableError, match="ILLEGAL_GENERATION"):
                await producer.send_offsets_to_transaction({A: OffsetAndMetadata(offset=6)}, "g", member)
            await producer.abort_transaction()
            assert peer.story[-2:] == ["abort", "epoch 1"]

    run(main)


def test_an_error_in_the_block_aborts_the_transaction() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):

            async def fail() -> None:
                async with producer.transaction():
                    await (await producer.send("t", b"v", partition=0))
                    raise KeyError

            with pytest.raises(KeyError):
                await fail()
            assert peer.story == ["epoch 0", "add t-0", "abort", "epoch 1"]

    run(main)


def test_closing_aborts_what_is_open() -> None:
    async def main() -> None:
        async with transacting() as (producer, peer):
            producer.begin_transaction()
            await (await producer.send("t", b"v", partition=0))
            await producer.close()
            assert peer.story[:3] == ["epoch 0", "add t-0", "abort"]

    run(main)


def test_calls_that_overlap_are_refused() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with transacting() as (producer, peer):

            async def gated(request: EndTxnRequest):  # type: ignore[no-untyped-def]
                await gate.wait()
                return peer.end(request)

            peer.on(EndTxnRequest, gated)
            producer.begin_transaction()
            await (await producer.send("t", b"v", partition=0))
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            with pytest.raises(TransactionStateError, match="cannot commit while another such call"):
                await producer.commit_transaction()
            gate.set()
            await committing

    run(main)


def test_a_coordinator_that_does_not_answer_is_waited_for_only_so_long() -> None:
    async def main() -> None:
        peer = CoordinatingPeer()
        peer.on(InitProducerIdRequest, lambda _: None)
        settings = replace(TRANSACTIONAL, max_block_ms=50)
        connections = replace(CONNECTIONS, request_timeout_ms=20)
        async with (
            serving([peer], partitions=1) as scripted,
            Cluster(scripted.bootstrap, settings=connections, backoff=QUICK) as cluster,
            TransactionalProducer(cluster, settings=settings) as producer,
        ):
            with pytest.raises(RequestTimedOutError):
                await producer.init_transactions()
            assert producer.status is TransactionStatus.UNINITIALIZED

    run(main)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_fails_a_committed_transaction_is_whole_once_and_in_order(seed: int) -> None:
    async def main() -> None:
        random, troubled = Random(seed), True
        settings = replace(TRANSACTIONAL, linger_ms=0, batch_bytes=300, delivery_timeout_ms=20_000)
        async with transacting(settings) as (producer, peer):
            verify = peer.trouble

            def troubles(partition: TopicPartition, batch: Buffer) -> ErrorCode:
                fate = random.random() if troubled else 1.0
                if fate < 0.01:
                    return ErrorCode.INVALID_RECORD
                return ErrorCode.NOT_LEADER_OR_FOLLOWER if fate < 0.1 else verify(partition, batch)

            def shaky(request: ProduceRequest) -> ProduceResponse | None:
                fate = random.random() if troubled else 1.0
                answer = None if fate < 0.03 else peer.produce(request)
                if fate < 0.06:
                    peer.disconnect()
                    return None
                return answer

            def refusals(_: type) -> ErrorCode:
                fate = random.random() if troubled else 1.0
                return ErrorCode.CONCURRENT_TRANSACTIONS if fate < 0.2 else ErrorCode.NONE

            peer.trouble, peer.refusals = troubles, refusals
            peer.on(ProduceRequest, shaky)
            committed: list[bytes] = []
            for number in range(40):
                troubled = number < 39
                values = [b"%02d-%02d" % (number, place) * 5 for place in range(random.randrange(30))]
                producer.begin_transaction()
                try:
                    for place, value in enumerate(values):
                        await producer.send("t", value, partition=place % 2)
                    if random.random() < 0.2:
                        raise KeyError
                    await producer.commit_transaction()
                    committed += values
                except (KeyError, TransactionAbortableError):
                    await producer.abort_transaction()
            assert committed
            expected = set(committed)
            for number in range(2):
                written = [value for value in peer.log("t", number).values if value in expected]
                assert written == sorted(value for value in committed if int(value[3:5]) % 2 == number)

    run(main)


def test_without_a_transactional_id_there_are_no_transactions() -> None:
    async def main() -> None:
        peer = CoordinatingPeer()
        async with serving([peer], partitions=1) as scripted, Cluster(scripted.bootstrap) as cluster:
            with pytest.raises(ConfigurationError, match="transactional_id is missing"):
                TransactionalProducer(cluster, settings=SETTINGS)
            with pytest.raises(ConfigurationError, match="a TransactionalProducer is needed"):
                await Producer(cluster, settings=TRANSACTIONAL).start()
        with pytest.raises(ConfigurationError, match="a transactional producer is idempotent"):
            replace(TRANSACTIONAL, idempotent=False)

    run(main)
