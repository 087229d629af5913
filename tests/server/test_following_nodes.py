"""What a leader does for the nodes that follow it, and what they are worth to those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.states import leave_isrs
from broker.errors import ErrorCode
from broker.types import BrokerId
from tests.conformance.scene import until
from tests.node.raw_client import batch_of, produce_request
from tests.server.followed_node import LEADER, LONG_MS, TOPIC, FollowedNode, followed_node

LATEST = -1
FEW_MS = 50


async def begun(node: FollowedNode, work: Coroutine[Any, Any, Any], end: int) -> asyncio.Task[Any]:
    """A produce under way, once the leader's log reaches `end`."""
    task = asyncio.create_task(work)
    await until(lambda: node.list_offset(LATEST, replica_id=9), lambda told: told.offset >= end)
    return task


def test_what_acks_all_waits_for_is_that_every_follower_asks_for_what_comes_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, 3) as node:
            produced = await begun(node, node.produce(b"a", b"b"), 2)
            assert (await node.consume(0)).records == b""
            got = await node.fetch(2, 0)
            assert got.records
            assert got.high_watermark == 0
            assert (await node.fetch(2, 2)).high_watermark == 0
            assert not produced.done()
            assert (await node.fetch(3, 2)).high_watermark == 2
            answer = await produced
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
            assert (await node.consume(0)).records == got.records

    asyncio.run(scenario())


def test_produces_of_one_connection_wait_for_followers_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, configs={"min.insync.replicas": "2"}) as node:
            producer = await node.connect()
            answers = [
                producer.send(produce_request(TOPIC, batch_of(value), acks=-1))
                for value in (b"a", b"b", b"c")
            ]
            await until(lambda: node.list_offset(LATEST, replica_id=9), lambda told: told.offset == 3)
            assert not answers[0].done()
            await node.fetch(2, 3)
            told = [(await answer).responses[0].partition_responses[0] for answer in answers]
            assert [(each.error_code, each.base_offset) for each in told] == [(0, 0), (0, 1), (0, 2)]

    asyncio.run(scenario())


def test_a_produce_to_several_partitions_waits_for_all_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            producer = await node.connect()
            request = produce_request(TOPIC, batch_of(b"a"), acks=-1)
            further = produce_request(TOPIC, batch_of(b"b"))
            request.topic_data[0].partition_data += further.topic_data[0].partition_data
            answer = producer.send(request)
            await until(lambda: node.list_offset(LATEST, replica_id=9), lambda told: told.offset == 2)
            await node.fetch(2, 1)
            assert not answer.done()
            await node.fetch(2, 2)
            told = (await answer).responses[0].partition_responses
            assert [(each.error_code, each.base_offset) for each in told] == [(0, 0), (0, 1)]
            request.timeout_ms = FEW_MS
            late = (await producer.request(request)).responses[0].partition_responses
            assert [each.error_code for each in late] == [ErrorCode.REQUEST_TIMED_OUT] * 2

    asyncio.run(scenario())


def test_acks_of_one_wait_for_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            assert (await node.produce(b"a", acks=1)).error_code == ErrorCode.NONE
            assert (await node.consume(0)).records == b""

    asyncio.run(scenario())


def test_the_oldest_produce_may_ask_for_a_number_of_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, 3) as node:
            produced = await begun(node, node.produce(b"a", acks=2, version=0), 1)
            waits = await begun(node, node.produce(b"b", acks=3, version=0, timeout_ms=FEW_MS), 2)
            await node.fetch(2, 1)
            assert (await produced).error_code == ErrorCode.NONE
            assert (await waits).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert (await node.produce(b"c", acks=2, version=1)).error_code == (
                ErrorCode.INVALID_REQUIRED_ACKS
            )

    asyncio.run(scenario())


def test_a_produce_that_is_not_committed_in_time_says_so_and_may_be_committed_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            late = await node.produce(b"a", timeout_ms=FEW_MS)
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
            await node.fetch(2, 1)
            assert (await node.consume(0)).records

    asyncio.run(scenario())


def test_a_follower_waits_for_appends_and_a_consumer_for_the_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            following = asyncio.create_task(node.fetch(2, 0, max_wait_ms=LONG_MS))
            consuming = asyncio.create_task(node.consume(0, max_wait_ms=LONG_MS))
            produced = asyncio.create_task(node.produce(b"a"))
            assert (await following).records
            assert not consuming.done()
            await node.fetch(2, 1)
            assert (await consuming).records
            assert (await produced).error_code == ErrorCode.NONE

    asyncio.run(scenario())


def test_bytes_that_are_committed_together_count_for_a_consumer_that_waits_for_many(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            small = len((await committed(node, b"x" * 1000)).records or b"")
            consuming = asyncio.create_task(node.consume(1, max_wait_ms=LONG_MS, min_bytes=small * 2))
            await node.produce(b"x" * 1000, acks=1)
            await node.fetch(2, 2)
            await node.consume(0)
            assert not consuming.done()
            await node.produce(b"x" * 1000, acks=1)
            await node.fetch(2, 3)
            assert len((await consuming).records or b"") == small * 2

    asyncio.run(scenario())


async def committed(node: FollowedNode, value: bytes) -> Any:
    await node.produce(value, acks=1)
    await node.fetch(2, 1)
    return await node.consume(0)


def test_too_few_replicas_in_sync_refuse_a_produce(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, configs={"min.insync.replicas": "3"}) as node:
            refused = await node.produce(b"a")
            assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await node.produce(b"a", acks=1)).base_offset == 0

    asyncio.run(scenario())


def test_who_does_not_keep_up_leaves_and_joins_again_once_it_has_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        configs = {"min.insync.replicas": "2"}
        async with followed_node(tmp_path, 2, configs=configs, replica_lag_time_max_ms=100) as node:
            answer = await node.produce(b"a")
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            await node.until_isr(1)
            assert (await node.consume(0)).high_watermark == 1
            assert (await node.fetch(2, 0)).records
            await node.fetch(2, 1)
            await node.until_isr(1, 2)

    asyncio.run(scenario())


def test_who_was_registered_anew_since_its_fetch_does_not_join(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, 3, replica_lag_time_max_ms=100) as node:
            await node.produce(b"a")
            await node.until_isr(1)
            former = node.followers[2].epoch
            await node.register(2)
            await node.fetch(2, 1, broker_epoch=former)
            await node.fetch(3, 1)
            await node.until_isr(1, 3)
            await node.fetch(2, 1)
            await node.until_isr(1, 2, 3)
            stale = await node.fetch(2, 1, broker_epoch=former)
            assert stale.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_follower_is_told_what_is_wrong_with_its_fetch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            await node.produce(b"a", b"b", acks=1)
            await node.fetch(2, 1)
            await node.register(9)
            for broker_id, fields, code in (
                (9, {}, ErrorCode.UNKNOWN_LEADER_EPOCH),
                (2, {"current_leader_epoch": -1}, ErrorCode.INVALID_REQUEST),
                (2, {"current_leader_epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                assert (await node.fetch(broker_id, 0, **fields)).error_code == code
            beyond = await node.fetch(2, 3)
            assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (beyond.log_start_offset, beyond.high_watermark) == (0, 1)
            parted = await node.fetch(2, 3, last_fetched_epoch=0)
            assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 2)
            assert (await node.consume(0)).high_watermark == 1, "nothing of that committed anything"

    asyncio.run(scenario())


def test_a_new_leader_epoch_does_not_tell_the_end_before_it_knows_what_is_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, 3) as node:
            await node.produce(b"a", acks=1)
            await leave_isrs(node.followers[3].session, BrokerId(3))  # which begins an epoch
            told = await until(lambda: node.list_offset(LATEST), lambda told: told.error_code != 0)
            assert told.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await node.list_offset(LATEST, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (await node.list_offset(-2)).offset == 0
            await node.fetch(2, 1)
            assert (await node.list_offset(LATEST)).offset == 1

    asyncio.run(scenario())


@pytest.mark.long
def test_a_follower_that_is_not_in_sync_gets_no_more_than_the_replication_quota(tmp_path: Path) -> None:
    """Ten seconds' worth at once; those in sync get all, and consumers too."""

    async def scenario() -> None:
        throttled = {"leader.replication.throttled.replicas": f"0:{LEADER}"}
        settings = {"leader_replication_throttled_rate": 1000, "replica_lag_time_max_ms": 300}
        async with followed_node(tmp_path, 2, 3, configs=throttled, **settings) as node:
            for number in range(6):
                await node.produce(bytes(4000), acks=1)
                await node.fetch(2, number + 1)
            await node.until_isr(1, 2)
            offset, sizes = 0, []
            for _ in range(4):
                answer = await node.fetch(3, offset, max_wait_ms=FEW_MS)
                sizes.append(len(answer.records or b""))
                offset += sizes[-1] // 4000
                assert answer.high_watermark == 6
            assert [size // 4000 for size in sizes] == [2, 1, 0, 0]
            assert len((await node.fetch(2, 0)).records or b"") > 24_000
            assert len((await node.consume(0)).records or b"") > 24_000

    asyncio.run(scenario())


@pytest.mark.long
def test_records_that_a_quota_keeps_back_are_waited_for_as_long_as_the_follower_says(tmp_path: Path) -> None:
    """Appends wake it as little as what there is already."""

    async def scenario() -> None:
        throttled = {"leader.replication.throttled.replicas": "*"}
        settings = {"leader_replication_throttled_rate": 0, "replica_lag_time_max_ms": 300}
        async with followed_node(tmp_path, 2, configs=throttled, **settings) as node:
            await node.produce(b"a", acks=1)
            await node.until_isr(1)
            waiting = asyncio.create_task(node.fetch(2, 0, max_wait_ms=LONG_MS))
            for _ in range(3):
                await node.produce(b"b")
            assert not waiting.done()
            waiting.cancel()

    asyncio.run(scenario())


def test_records_are_deleted_once_every_in_sync_replica_starts_behind_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2) as node:
            await node.produce(b"a", b"b", acks=1)
            await node.fetch(2, 2)
            late = await node.delete_before(1, timeout_ms=FEW_MS)
            assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            following = asyncio.create_task(node.fetch(2, 2, max_wait_ms=LONG_MS, log_start_offset=1))
            deleted = await begun(node, node.delete_before(2), 2)
            assert (await following).log_start_offset == 2, "followers hear of it at once"
            assert not deleted.done()
            await node.fetch(2, 2, log_start_offset=2)
            answer = await deleted
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)

    asyncio.run(scenario())


def test_a_follower_whose_registration_ends_leaves_the_isr_before_it_lags(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with followed_node(tmp_path, 2, 3) as node:
            epoch = node.state().leader_epoch
            await node.followers[3].session.close()
            await node.until_isr(1, 2)
            assert node.state().leader_epoch == epoch, "its leader wrote it, and nobody was elected"
            written = asyncio.create_task(node.produce(b"a"))
            await node.fetch(2, 0, max_wait_ms=LONG_MS)
            await node.fetch(2, 1)
            assert (await written).error_code == ErrorCode.NONE

    asyncio.run(scenario())
