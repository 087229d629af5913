"""What a reader asks of its consumer beside records: places, commits, figures; and that it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer, ConsumerSettings, OffsetReset
from broker.client.consumer_commits import Offsets
from broker.client.fetcher import Fetcher
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.group_settings import GroupSettings
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.leave_group import LeaveGroupRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from tests.client.coordinating import CoordinatingPeer
from tests.client.logs import ServingPeer
from tests.client.peers import serving
from tests.client.running import QUICK, run, until

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
MANUAL = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10, auto_commit_interval_ms=0)
GROUP = GroupSettings(
    group_id="g", heartbeat_interval_ms=5, session_timeout_ms=5_000, rebalance_timeout_ms=5_000
)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Node(ServingPeer, CoordinatingPeer):
    """Serves records, and coordinates the group."""


@asynccontextmanager
async def consuming(
    settings: ConsumerSettings = MANUAL, group: GroupSettings | None = GROUP, *, partitions: int = 1
) -> AsyncIterator[tuple[Consumer, Node]]:
    node = Node()
    async with (
        serving([node], partitions=partitions) as scripted,
        Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
        Consumer(cluster, settings=settings, group=group) as consumer,
    ):
        yield consumer, node


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    taken: list[bytes | None] = []
    while len(taken) < count:
        taken += [record.value for record in await consumer.take(max_records=count - len(taken))]
    return taken


def test_reading_goes_on_at_the_beginning_the_end_or_a_time() -> None:
    async def main() -> None:
        async with consuming(partitions=2) as (consumer, node):
            for number in range(4):
                node.log().append(b"%d" % number)
            consumer.assign({ZERO: 2, ONE: 0})
            await consumer.seek_to_beginning([ZERO])
            assert await take(consumer, 4) == [b"0", b"1", b"2", b"3"]
            await consumer.seek_to_time({ZERO: 1_500})
            assert await take(consumer, 2) == [b"2", b"3"]
            await consumer.seek_to_end()
            assert consumer.position(ZERO) == 4
            node.log().append(b"4")
            assert await take(consumer, 1) == [b"4"]
            with pytest.raises(KeyError):
                await consumer.seek_to_end([TopicPartition("other", 0)])

    run(main)


def test_a_time_after_the_last_record_is_the_end() -> None:
    async def main() -> None:
        async with consuming() as (consumer, node):
            node.log().append(b"0", b"1")
            node.log().offset_at = lambda timestamp: 2 if timestamp == -1 else -1  # type: ignore[method-assign]
            consumer.assign([ZERO])
            await consumer.seek_to_time({ZERO: 1_000_000})
            assert consumer.position(ZERO) == 2

    run(main)


class _FixedClock:
    def now_ms(self) -> int:
        return 5_000

    def monotonic_ms(self) -> int:
        return 0


def test_without_a_position_reading_begins_a_duration_before_now() -> None:
    async def main() -> None:
        node = Node()
        settings = ConsumerSettings(offset_reset=OffsetReset.BY_DURATION, offset_reset_duration_ms=2_000)
        async with (
            serving([node], partitions=1) as scripted,
            Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
        ):
            node.log().append(b"0", b"1", b"2", b"3", b"4")
            fetcher = Fetcher(cluster, settings, clock=_FixedClock())
            fetcher.add(ZERO, None, fetcher.new_queue(settings.buffer_bytes))
            running = asyncio.create_task(fetcher.run())
            await until(lambda: fetcher.partitions[ZERO].position == 3)
            running.cancel()
            await asyncio.wait([running])
            await fetcher.close()

    run(main)


def test_commits_that_nobody_waits_for_keep_their_order_and_tell_what_became_of_them() -> None:
    async def main() -> None:
        told: list[tuple[int, BrokerError | None]] = []

        def tell(offsets: Offsets, error: BrokerError | None) -> None:
            told.append((offsets[ZERO].offset, error))

        async with consuming() as (consumer, node):
            node.log().append(b"a", b"b", b"c")
            consumer.subscribe(["t"])
            await take(consumer, 1)
            consumer.commit_later(callback=tell)
            await take(consumer, 1)
            consumer.commit_later(callback=tell)
            await consumer.commit({ZERO: OffsetAndMetadata(offset=3)})
            assert told == [(1, None), (2, None)]
            assert node.offsets[ZERO].offset == 3
            node.commit_codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            consumer.commit_later({ZERO: OffsetAndMetadata(offset=1, metadata="x")}, tell)
        ((_, error),) = told[2:]
        assert isinstance(error, ProtocolError)
        assert error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
        commits = [
            commit.topics[0].partitions[0].committed_offset for commit in node.seen(OffsetCommitRequest)
        ]
        assert commits == [1, 2, 3, 1]

    run(main)


def test_partitions_assigned_by_hand_go_on_where_their_group_committed() -> None:
    async def main() -> None:
        async with consuming() as (consumer, node):
            node.log().append(b"a", b"b", b"c")
            node.offsets[ZERO] = OffsetAndMetadata(offset=1)
            consumer.assign([ZERO])
            assert await take(consumer, 1) == [b"b"]
            await consumer.commit()
            assert node.offsets[ZERO].offset == 2
            assert (await consumer.committed([ZERO]))[ZERO].offset == 2
            assert node.seen(OffsetCommitRequest)[-1].member_id == ""

    run(main)


def test_what_the_reader_of_partitions_assigned_by_hand_is_done_with_is_committed_at_the_end() -> None:
    async def main() -> None:
        settings = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=60_000)
        async with consuming(settings) as (consumer, node):
            node.log().append(b"a", b"b", b"c")
            consumer.assign([ZERO])
            await take(consumer, 2)
        assert node.offsets[ZERO].offset == 2

    run(main)


def test_a_consumer_without_a_group_commits_nothing_and_one_that_is_subscribed_is_assigned_nothing() -> None:
    async def main() -> None:
        async with consuming(group=None) as (consumer, _):
            with pytest.raises(RuntimeError, match="with a group"):
                await consumer.commit()
            with pytest.raises(RuntimeError, match="needs a group"):
                consumer.subscribe(["t"])
        async with consuming() as (consumer, _):
            consumer.subscribe(["t"])
            with pytest.raises(RuntimeError, match="from its group"):
                consumer.assign([ZERO])

    run(main)


def test_figures_tell_how_far_behind_a_consumer_is() -> None:
    async def main() -> None:
        async with consuming(partitions=2) as (consumer, node):
            node.log().append(b"a", b"b", b"c")
            consumer.assign({ZERO: 0, ONE: 0})
            assert consumer.lag(ZERO) is None
            await take(consumer, 1)
            consumer.pause([ONE])
            assert consumer.lag(ZERO) == 2
            assert consumer.paused == {ONE}
            metrics = consumer.metrics()
            assert (metrics.lag_max, metrics.records_taken) == (2, 1)
            assert metrics.fetched_bytes == len(node.log().batches[0])
            assert metrics.partitions[ZERO].position == 1
            assert metrics.partitions[ONE].is_paused

    run(main)


def test_a_reader_that_stays_away_loses_its_partitions_until_it_is_back() -> None:
    async def main() -> None:
        told: list[str] = []

        async def assigned(_: frozenset[TopicPartition]) -> None:
            told.append("assigned")

        async def lost(_: frozenset[TopicPartition]) -> None:
            told.append("lost")

        settings = ConsumerSettings(
            offset_reset=OffsetReset.EARLIEST,
            fetch_max_wait_ms=10,
            auto_commit_interval_ms=0,
            max_poll_interval_ms=150,
        )
        async with consuming(settings) as (consumer, node):
            node.log().append(b"a", b"b")
            consumer.subscribe(["t"], on_assigned=assigned, on_lost=lost)
            assert await take(consumer, 1) == [b"a"]
            await until(lambda: bool(node.seen(LeaveGroupRequest)))
            assert told == ["assigned", "lost"]
            with pytest.raises(ProtocolError):
                await consumer.commit()
            assert await take(consumer, 1) == [b"a"]
            assert told == ["assigned", "lost", "assigned"]

    run(main)


def test_a_reader_that_waits_for_records_is_not_away() -> None:
    async def main() -> None:
        settings = ConsumerSettings(
            offset_reset=OffsetReset.EARLIEST,
            fetch_max_wait_ms=10,
            auto_commit_interval_ms=0,
            max_poll_interval_ms=30,
        )
        async with consuming(settings) as (consumer, node):
            consumer.subscribe(["t"])
            assert await consumer.take(timeout_ms=150) == []
            assert not node.seen(LeaveGroupRequest)

    run(main)
