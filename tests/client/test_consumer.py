from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import (
    Consumer,
    ConsumerRecord,
    ConsumerSettings,
    Isolation,
    OffsetReset,
    PartitionError,
)
from broker.errors import ConnectionFailedError, ErrorCode
from broker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Codec, read_header, restamp, write_header
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from broker.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.wire.messages.metadata import MetadataRequest
from tests.client.logs import LEADER_EPOCH, Log, ServingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
EARLIEST = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@asynccontextmanager
async def consuming(
    settings: ConsumerSettings = EARLIEST,
    *,
    partitions: int = 1,
    nodes: int = 1,
    connections: ConnectionSettings = CONNECTIONS,
) -> AsyncIterator[tuple[Consumer, PeerCluster, ServingPeer]]:
    """A consumer and the first of the scripted nodes it reads from; they share one log per partition."""
    logs: dict[TopicPartition, Log] = {}
    peers = [ServingPeer(number + 1, logs=logs) for number in range(nodes)]
    async with (
        serving(peers, partitions=partitions) as scripted,
        Cluster(scripted.bootstrap, settings=connections, backoff=QUICK) as cluster,
        Consumer(cluster, settings=settings) as consumer,
    ):
        yield consumer, scripted, peers[0]


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Exactly this many records."""
    taken: list[ConsumerRecord] = []
    while len(taken) < count:
        taken += await consumer.take(max_records=count - len(taken))
    return taken


def values(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_records_come_in_order_with_all_that_belongs_to_them() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            peer.log().append(b"a", b"b", codec=Codec.SNAPPY)
            peer.log().append(b"c")
            consumer.assign([ZERO])
            assert await take(consumer, 3) == [
                ConsumerRecord("t", 0, offset, offset * 1000, 0, b"k", value, ())
                for offset, value in enumerate([b"a", b"b", b"c"])
            ]
            assert consumer.position(ZERO) == 3
            assert await consumer.take(timeout_ms=20) == []
            peer.log().append(b"d")
            assert [record.value for record in await consumer.take()] == [b"d"]

    run(main)


def test_iterating_goes_on_as_records_arrive() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            consumer.assign([ZERO])
            seen = []
            peer.log().append(b"0")
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 3:
                    break
                peer.log().append(b"%d" % len(seen))
            assert seen == [b"0", b"1", b"2"]

    run(main)


@pytest.mark.parametrize(("offset", "expected"), [(None, 3), (1, 1), (3, 3)])
def test_reading_begins_at_the_given_offset_or_where_the_policy_says(
    offset: int | None, expected: int
) -> None:
    async def main() -> None:
        async with consuming(ConsumerSettings(offset_reset=OffsetReset.LATEST)) as (consumer, _, peer):
            peer.log().append(*values(0, 1, 2))
            consumer.assign({ZERO: offset})
            await until(lambda: consumer.position(ZERO) is not None)
            peer.log().append(*values(3))
            assert (await consumer.take())[0].offset == expected

    run(main)


def test_raw_batches_are_whole_writable_and_tell_where_they_stand() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            batches = [peer.log().append(b"a", b"b"), peer.log().append(b"c")]
            consumer.assign({ZERO: 1})
            fetched = await consumer.take_batches()
            assert fetched is not None
            assert fetched.records == batches[0] + batches[1]
            assert (fetched.start_offset, fetched.next_offset, fetched.high_watermark) == (1, 3, 3)
            assert fetched.leader_epoch == LEADER_EPOCH
            fetched.records[0] = 0xFF
            assert await consumer.take_batches(timeout_ms=20) is None

    run(main)


def test_raw_batches_go_on_where_records_were_taken_last() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            peer.log().append(*values(0, 1, 2, 3))
            consumer.assign([ZERO])
            assert len(await consumer.take(max_records=3)) == 3
            fetched = await consumer.take_batches()
            assert fetched is not None
            assert (fetched.start_offset, fetched.next_offset) == (3, 4)

    run(main)


def test_no_more_is_fetched_ahead_than_the_bounds_allow() -> None:
    async def main() -> None:
        settings = ConsumerSettings(
            offset_reset=OffsetReset.EARLIEST,
            partition_max_bytes=10_000,
            fetch_max_wait_ms=10,
            buffer_bytes=25_000,
        )
        async with consuming(settings, partitions=4) as (consumer, _, peer):
            for partition in range(4):
                for _ in range(10):
                    peer.log("t", partition).append(b"x" * 9_000)
            consumer.assign([TopicPartition("t", number) for number in range(4)])
            fetched = await consumer.take_batches()
            assert fetched is not None
            states = consumer._fetcher.partitions.values()
            await until(lambda: not any(state.busy for state in states))
            asked = len(peer.seen(FetchRequest))
            buffered = sum(state.buffered_bytes for state in states)
            assert 0 < buffered < 25_000 + 10_000
            assert all(request.max_bytes <= 25_000 for request in peer.seen(FetchRequest))
            assert len(peer.seen(FetchRequest)) == asked
            assert len(await take(consumer, 39)) == 39

    run(main)


@pytest.mark.parametrize("settings", [EARLIEST, replace(EARLIEST, buffer_bytes=1_000_000)])
def test_every_node_is_asked_while_the_others_have_nothing_new(settings: ConsumerSettings) -> None:
    async def main() -> None:
        async with consuming(settings, partitions=5, nodes=5) as (consumer, scripted, _):
            scripted.leaders["t"] = [1, 2, 3, 4, 5]
            for peer in scripted.peers.values():
                peer.on(FetchRequest, lambda _: asyncio.Event().wait())
            consumer.assign([TopicPartition("t", number) for number in range(5)])
            await until(lambda: all(peer.seen(FetchRequest) for peer in scripted.peers.values()))

    run(main)


def test_partitions_take_turns_where_only_one_may_be_fetched_at_a_time() -> None:
    async def main() -> None:
        settings = replace(EARLIEST, partition_max_bytes=4_000, buffer_bytes=9_500)
        async with consuming(settings, partitions=3, nodes=3) as (consumer, scripted, peer):
            scripted.leaders["t"] = [1, 2, 3]
            peer.log("t", 0).append(b"x" * 9_400)
            consumer.assign([ZERO])
            held = consumer._fetcher.partitions[ZERO]
            await until(lambda: held.buffered_bytes > 0)
            for number in (1, 2):
                consumer.add(TopicPartition("t", number), 0)
            await until(lambda: all(scripted.peers[node].seen(FetchRequest) for node in (2, 3)))

    run(main)


def test_a_batch_that_does_not_fit_is_asked_for_again_with_more_bytes() -> None:
    async def main() -> None:
        settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, partition_max_bytes=1_000)
        async with consuming(settings) as (consumer, _, peer):
            whole = peer.log().append(b"x" * 5_000)

            def torn(request: FetchRequest) -> FetchResponse:
                asked = request.topics[0].partitions[0].partition_max_bytes
                data = PartitionData(partition_index=0, high_watermark=1, records=bytes(whole[:asked]))
                return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

            peer.on(FetchRequest, torn)
            consumer.assign([ZERO])
            assert (await consumer.take())[0].value == b"x" * 5_000
            asked = [
                request.topics[0].partitions[0].partition_max_bytes for request in peer.seen(FetchRequest)
            ]
            assert asked[:2] == [1_000, len(whole)]

    run(main)


def test_seeking_drops_what_was_fetched_before() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            peer.log().append(*values(0, 1, 2))
            peer.log().append(*values(3, 4))
            consumer.assign([ZERO])
            await take(consumer, 1)
            consumer.seek(ZERO, 4)
            assert [record.offset for record in await consumer.take()] == [4]
            consumer.seek(ZERO, 1)
            with pytest.raises(ValueError, match="offset -1 is below 0"):
                consumer.seek(ZERO, -1)
            assert [record.offset for record in await take(consumer, 4)] == [1, 2, 3, 4]

    run(main)


def test_a_paused_partition_keeps_its_place() -> None:
    async def main() -> None:
        async with consuming(partitions=2) as (consumer, _, peer):
            for partition in (0, 1):
                peer.log("t", partition).append(*values(0, 1, 2))
            consumer.assign([ZERO, ONE])
            first = await take(consumer, 1)
            paused = TopicPartition("t", first[0].partition)
            consumer.pause([paused])
            assert {record.partition for record in await take(consumer, 3)} == {1 - paused.partition}
            assert await consumer.take(timeout_ms=30) == []
            consumer.resume([paused])
            assert [record.offset for record in await take(consumer, 2)] == [1, 2]

    run(main)


def test_paused_partitions_leave_the_others_room_and_lose_nothing() -> None:
    async def main() -> None:
        settings = replace(EARLIEST, partition_max_bytes=10_000, buffer_bytes=20_000)
        async with consuming(settings, partitions=3) as (consumer, _, peer):
            full = [TopicPartition("t", 0), TopicPartition("t", 1)]
            for partition in full:
                for _ in range(3):
                    peer.log("t", partition.partition).append(*[b"x" * 4_500] * 2)
            peer.log("t", 2).append(b"small")
            consumer.assign(full)
            begun = await consumer.take(max_records=1)  # whose partition is in the middle of a batch then
            states = [consumer._fetcher.partitions[partition] for partition in full]
            await until(lambda: sum(state.buffered_bytes for state in states) >= 20_000)
            consumer.pause(full)
            consumer.add(TopicPartition("t", 2), 0)
            assert [record.value for record in await take(consumer, 1)] == [b"small"]
            consumer.resume(full)
            rest = await take(consumer, 11)
            read = sorted((record.partition, record.offset) for record in [*begun, *rest])
            assert read == [(partition, offset) for partition in (0, 1) for offset in range(6)]
            assert await consumer.take(timeout_ms=30) == []

    run(main)


def test_partitions_come_and_go() -> None:
    async def main() -> None:
        async with consuming(partitions=2) as (consumer, _, peer):
            for partition in (0, 1):
                peer.log("t", partition).append(*values(0, 1))
            consumer.assign([ZERO])
            await take(consumer, 1)
            consumer.assign([ONE])
            assert consumer.assignment == {ONE}
            assert {record.partition for record in await take(consumer, 2)} == {1}
            consumer.add(ZERO, 1)
            assert [(record.partition, record.offset) for record in await take(consumer, 1)] == [(0, 1)]

    run(main)


def test_a_position_that_the_log_lost_is_reset_by_the_policy() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            peer.log().append(*values(0, 1, 2))
            peer.log().start = 2
            consumer.assign({ZERO: 0})
            assert [record.offset for record in await consumer.take()] == [2]

    run(main)


def test_without_a_policy_a_lost_position_is_an_error_of_that_partition_only() -> None:
    async def main() -> None:
        settings = ConsumerSettings(offset_reset=OffsetReset.NONE, fetch_max_wait_ms=10)
        async with consuming(settings, partitions=2) as (consumer, _, peer):
            peer.log("t", 0).append(*values(0, 1, 2))
            peer.log("t", 0).start = 2
            peer.log("t", 1).append(*values(0))
            consumer.assign({ZERO: 0, ONE: None})
            failed: dict[TopicPartition, PartitionError] = {}
            while len(failed) < 2:
                with pytest.raises(PartitionError) as raised:
                    await consumer.take()
                failed[raised.value.topic_partition] = raised.value
            assert {error.code for error in failed.values()} == {ErrorCode.OFFSET_OUT_OF_RANGE}
            assert (failed[ZERO].position, failed[ONE].position) == (0, -1)
            consumer.seek(ONE, 0)
            assert (await consumer.take())[0].partition == 1
            consumer.seek(ZERO, 2)
            assert (await consumer.take())[0].offset == 2

    run(main)


@pytest.mark.parametrize("reset", [OffsetReset.NONE, OffsetReset.EARLIEST])
def test_a_topic_created_anew_is_not_read_on_from_the_old_position(reset: OffsetReset) -> None:
    async def main() -> None:
        settings = ConsumerSettings(offset_reset=reset, fetch_max_wait_ms=10)
        async with consuming(settings) as (consumer, scripted, peer):
            scripted.topic_ids = {"t": UUID(int=1)}
            peer.versions[FetchRequest.api_key] = (0, 12)
            peer.log().append(*values(0, 1, 2))
            consumer.assign({ZERO: 0})
            await take(consumer, 3)
            scripted.topic_ids = {"t": UUID(int=2)}
            peer.logs[ZERO] = Log()
            peer.log().append(*values(10, 11, 12, 13))
            peer.trouble = lambda _: ErrorCode.UNKNOWN_TOPIC_ID
            await until(lambda: scripted.peers[1].seen(MetadataRequest)[-1].topics != [])
            asked = len(peer.seen(MetadataRequest))
            if reset is OffsetReset.NONE:
                with pytest.raises(PartitionError, match="INCONSISTENT_TOPIC_ID: t-0 at offset 3"):
                    await consumer.take()
                consumer.seek(ZERO, 0)
            else:  # asked twice, the first answer has been read
                await until(lambda: len(peer.seen(MetadataRequest)) > asked + 1)
            peer.trouble = lambda _: ErrorCode.NONE
            assert [record.value for record in await take(consumer, 4)] == values(10, 11, 12, 13)

    run(main)


def test_a_leader_that_moved_is_followed() -> None:
    async def main() -> None:
        async with consuming(nodes=2) as (consumer, scripted, peer):
            peer.log().append(*values(0))
            consumer.assign([ZERO])
            await take(consumer, 1)
            peer.trouble = lambda _: ErrorCode.NOT_LEADER_OR_FOLLOWER
            scripted.leaders, scripted.leader_epoch = {"t": [2]}, 1
            peer.log().append(*values(1))
            assert [record.offset for record in await consumer.take()] == [1]
            assert scripted.peers[2].seen(FetchRequest)

    run(main)


def test_a_broken_connection_loses_and_doubles_nothing() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            for number in range(20):
                peer.log().append(*values(number))
            consumer.assign([ZERO])

            def broken(_: FetchRequest) -> None:
                peer.disconnect()

            seen = []
            for _ in range(4):
                peer.once(FetchRequest, broken)
                seen += await take(consumer, 5)
            assert [record.offset for record in seen] == list(range(20))

    run(main)


def test_a_forbidden_partition_is_an_error_once_and_rests_until_resumed() -> None:
    async def main() -> None:
        async with consuming(partitions=2) as (consumer, _, peer):
            peer.log("t", 1).append(*values(0))
            peer.trouble = lambda partition: (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED if partition == ZERO else ErrorCode.NONE
            )
            consumer.assign({ZERO: 0, ONE: 0})
            outcomes: list[object] = []
            while len(outcomes) < 2:
                try:
                    outcomes.append((await consumer.take())[0].partition)
                except PartitionError as error:
                    outcomes.append((error.topic_partition, error.code))
            assert sorted(outcomes, key=str) == [(ZERO, ErrorCode.TOPIC_AUTHORIZATION_FAILED), 1]
            assert await consumer.take(timeout_ms=30) == []
            peer.trouble = lambda _: ErrorCode.NONE
            peer.log("t", 0).append(*values(0))
            consumer.resume([ZERO])
            assert (await consumer.take())[0].partition == 0

    run(main)


def test_a_topic_that_stays_unknown_is_an_error_after_the_time() -> None:
    async def main() -> None:
        settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, topic_gone_timeout_ms=30)
        async with consuming(settings) as (consumer, scripted, peer):
            consumer.assign({ZERO: 0})
            await until(lambda: len(peer.seen(FetchRequest)) > 0)
            scripted.leaders = {}
            peer.trouble = lambda _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            with pytest.raises(PartitionError, match="UNKNOWN_TOPIC_OR_PARTITION: t-0 at offset 0"):
                await consumer.take()

    run(main)


def test_damaged_records_are_an_error_at_their_offset_after_the_good_ones() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            peer.log().append(*values(0, 1))
            damaged = peer.log().append(*values(2, 3))
            damaged[-1] ^= 1
            consumer.assign([ZERO])
            assert [record.offset for record in await consumer.take()] == [0, 1]
            with pytest.raises(PartitionError, match=r"t-0 at offset 2.*CRC") as raised:
                await consumer.take()
            assert raised.value.position == 2
            consumer.seek(ZERO, 4)
            peer.log().append(*values(4))
            assert [record.offset for record in await consumer.take()] == [4]

    run(main)


def test_an_answer_over_the_limit_of_frames_ends_the_consumer_with_a_clear_error() -> None:
    async def main() -> None:
        connections = ConnectionSettings(max_frame_bytes=5_000)
        async with consuming(connections=connections) as (consumer, _, peer):
            peer.log().append(b"x" * 10_000)
            consumer.assign([ZERO])
            with pytest.raises(ConnectionFailedError, match="over the limit of 5000"):
                await consumer.take()

    run(main)


def test_a_closed_consumer_hands_nothing_out() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, _peer):
            await consumer.close()
            with pytest.raises(RuntimeError, match="not running"):
                await consumer.take()

    run(main)


def transactional(log: Log, producer_id: int, *values: bytes) -> None:
    builder = BatchBuilder(
        size_max=10_000, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    for value in values:
        builder.append(0, None, value)
    log.append_batch(builder.build())


def marker(log: Log, producer_id: int, *, committed: bool) -> None:
    builder = BatchBuilder(size_max=1_000)
    builder.append(0, b"\0\0\0" + bytes([committed]), bytes(6))
    batch = builder.build()
    restamp(
        batch,
        0,
        len(batch),
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1,
    )
    log.append_batch(batch)


@pytest.mark.parametrize(
    ("isolation", "visible"),
    [
        (Isolation.READ_UNCOMMITTED, [b"a1", b"plain", b"b1", b"a2", b"a3"]),
        (Isolation.READ_COMMITTED, [b"plain", b"b1", b"a3"]),
    ],
)
def test_records_of_aborted_transactions_are_left_out_when_asked(
    isolation: Isolation, visible: list[bytes]
) -> None:
    async def main() -> None:
        settings = ConsumerSettings(
            offset_reset=OffsetReset.EARLIEST, isolation=isolation, fetch_max_wait_ms=10
        )
        async with consuming(settings) as (consumer, _, peer):
            log = peer.log()
            transactional(log, 7, b"a1")
            log.append(b"plain")
            transactional(log, 8, b"b1")
            transactional(log, 7, b"a2")
            marker(log, 7, committed=False)
            marker(log, 8, committed=True)
            transactional(log, 7, b"a3")
            marker(log, 7, committed=True)

            def with_aborted(request: FetchRequest) -> FetchResponse:
                response = peer.fetch_now(request)
                response.responses[0].partitions[0].aborted_transactions = [
                    AbortedTransaction(producer_id=7, first_offset=0)
                ]
                return response

            peer.on(FetchRequest, with_aborted)
            consumer.assign([ZERO])
            assert [record.value for record in await take(consumer, len(visible))] == visible
            assert await consumer.take(timeout_ms=20) == []
            assert consumer.position(ZERO) == 8

    run(main)


def test_the_position_moves_past_batches_that_compaction_emptied() -> None:
    async def main() -> None:
        async with consuming() as (consumer, _, peer):
            batch = peer.log().append(*values(0, 1, 2))
            header = read_header(batch)
            del batch[61:]
            batch += b""
            write_header(batch, 0, header._replace(batch_length=49, record_count=0))
            peer.log().append(*values(3))
            consumer.assign([ZERO])
            assert [record.offset for record in await consumer.take()] == [3]

    run(main)
