"""Following with real logs: what is copied, cut and refused, and what happens when roles change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.errors import ErrorCode, ProtocolError
from broker.replication import fetcher, followed_log
from broker.replication.following import FetchBounds
from broker.replication.log_moves import LogMoves
from broker.replication.replica import Replica
from broker.settings import LONG_MAX
from broker.storage.disk import Disk, SystemDisk
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.memory_disk import MemoryDisk
from broker.storage.throttled_replicas import ThrottledReplicas
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from tests.replication.two_nodes import HostingNode, Network, log_files, two_nodes, until
from tests.storage.samples import NOW_MS, build, contents

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=0)
Scene = Callable[[HostingNode, HostingNode, Network], Coroutine[Any, Any, None]]


def memory(*names: str) -> tuple[MemoryDisk, list[Path]]:
    disk, roots = MemoryDisk(), [Path("/data") / name for name in names or ("one",)]
    disk.make_directory(Path("/data"))
    for root in roots:
        disk.make_directory(root)
    return disk, roots


def play(
    scene: Scene,
    *,
    config: LogConfig = SMALL,
    leader: tuple[Disk, list[Path]] | None = None,
    follower: tuple[Disk, list[Path]] | None = None,
) -> list[Any]:
    """Play a scene of two nodes; what was logged."""

    async def main() -> None:
        async with two_nodes(leader or memory(), follower or memory(), config=config) as (one, two, network):
            await scene(one, two, network)

    with capture_logs() as logs:
        asyncio.run(main())
    return logs


def named(logs: list[Any], event: str) -> list[Any]:
    return [each for each in logs if each["event"] == event]


def put(node: HostingNode, *values: bytes, number: int = 0, **options: Any) -> None:
    """One batch each."""
    for value in values:
        node.replica(number).append(build([value], **options), acks=1, now_ms=NOW_MS)


async def lead(leader: HostingNode, follower: HostingNode, epoch: int, *partitions: int) -> None:
    await leader.order(leader.id, epoch, *partitions)
    await follower.order(leader.id, epoch, *partitions)


async def copied(leader: HostingNode, follower: HostingNode, *values: bytes) -> None:
    """One batch each, which the follower has copied in epoch 0."""
    await lead(leader, follower, 0)
    put(leader, *values)
    await until(lambda: same(leader, follower))


async def lead_alone(one: HostingNode, two: HostingNode, *values: bytes) -> None:
    """Node 1 leads in epoch 1, in which node 2 follows nobody, and has one batch each."""
    await two.order(-1, 1)
    await one.order(1, 1)
    put(one, *values)


def same(one: HostingNode, two: HostingNode, number: int = 0) -> bool:
    ends = [node.replica(number).log.log_end_offset for node in (one, two)]
    return ends[0] == ends[1]


# Copies


def test_a_follower_has_the_leaders_bytes(tmp_path: Path) -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await copied(one, two, *[b"%d" % number * 30 for number in range(60)])
        assert log_files(one) == log_files(two)
        assert len(log_files(two)) > 3
        assert contents(two.replica().log) == contents(one.replica().log)
        assert two.fetchers.counts.bytes == one.replica().log.size
        assert two.replica().log.leader_epochs.entries == one.replica().log.leader_epochs.entries

    places = [(SystemDisk(), [tmp_path / name]) for name in ("one", "two")]
    play(scene, leader=places[0], follower=places[1])


def test_what_is_to_be_on_the_disk_is_there_before_the_leader_is_told_of_it() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        told: list[int] = []

        def note(request: FetchRequest) -> None:
            for wanted in request.topics[0].partitions:
                told.append(wanted.fetch_offset)
                assert two.replica().log.flushed_end >= wanted.fetch_offset

        network.overhear = note
        await lead(one, two, 1)
        for number in range(20):
            put(one, b"%d" % number)
            await until(lambda: told[-1:] == [one.replica().log.log_end_offset])

    play(scene, config=LogConfig(flush_messages=1))


def test_many_partitions_and_large_answers_are_copied_by_several_tasks() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        two.fetchers.reconfigure(3)
        await lead(one, two, 0, *range(20))
        for number in range(20):
            put(one, *[bytes(5_000)] * 40, number=number)
        await until(lambda: all(same(one, two, number) for number in range(20)))
        assert two.fetchers.partition_count == 20
        assert len(two.fetchers._fetchers) == 3
        two.fetchers.reconfigure(1)
        put(one, b"more", number=7)
        await until(lambda: same(one, two, 7))
        assert len(two.fetchers._fetchers) == 1
        assert all(log_files(one, number) == log_files(two, number) for number in range(20))

    play(scene, config=LogConfig())


def test_a_replica_that_is_throttled_waits_until_the_quota_has_room_and_others_do_not() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        two.quota.bound = 0
        await lead(one, two, 0, 0, 1)
        for number in (0, 1):
            put(one, *[bytes(100)] * 10, number=number)
        await until(lambda: same(one, two, 1))
        assert two.replica(0).log.log_end_offset == 0
        two.quota.bound = LONG_MAX
        await until(lambda: same(one, two, 0))

    throttled = ThrottledReplicas.parse("0:2,1:1")
    play(scene, config=LogConfig(follower_replication_throttled_replicas=throttled))


def test_high_watermark_and_log_start_follow_the_leaders() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        put(one, *[b"%d" % number for number in range(9)])
        await until(lambda: two.replica().high_watermark == 9)
        one.replica().log.advance_start(4)
        await until(lambda: two.replica().log.log_start_offset == 4)
        assert two.fetchers.lag_max == 0

    play(scene)


def test_producers_and_aborted_transactions_are_known_to_a_follower_that_becomes_leader() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        put(one, b"first", producer=(5, 0, 0))
        put(one, b"open", producer=(6, 0, 0), transactional=True)
        put(one, b"after")
        await until(lambda: two.replica().high_watermark == 3)
        assert two.replica().last_stable_offset == 1
        await lead(two, one, 1)
        again = two.replica().append(build([b"first"], producer=(5, 0, 0)), acks=1, now_ms=NOW_MS)
        assert (again.duplicate, again.first_offset) == (True, 0)

    play(scene)


def test_gaps_that_compaction_left_are_named_before_they_are_stored() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        put(one, *[b"%d" % number for number in range(6)])
        batches: list[bytes] = []

        def leave_out(response: FetchResponse) -> None:
            for answer in response.responses[0].partitions:
                if answer.records and not batches:
                    records = bytes(answer.records)
                    size = len(records) // 6
                    answer.records = records[: 2 * size] + records[4 * size :]
                    batches.append(records)

        network.damage = leave_out
        await until(lambda: same(one, two))
        log = two.replica().log
        assert log.compacted_end == 0
        checkpoint = log.directory.parent / "cleaner-offset-checkpoint"
        assert b"flights 0 0" in two.disk.read_file(checkpoint)
        assert [offset for offset, _ in contents(log)] == [0, 1, 4, 5]

    play(scene)


# Cuts


def test_what_an_old_leader_has_beyond_the_new_ones_history_is_cut() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await copied(one, two, b"a", b"b", b"c")
        await lead_alone(one, two, b"lost", b"lost too")
        await two.order(2, 2)
        put(two, b"d")
        await one.order(2, 2)
        await until(lambda: one.replica().log.log_end_offset == 4)
        assert contents(one.replica().log) == contents(two.replica().log)
        assert log_files(one) == log_files(two)

    logs = play(scene)
    (cut,) = named(logs, "follower_cut")
    assert (cut["partition"], cut["from_offset"], cut["to_offset"]) == ("flights-0", 5, 3)


def test_two_fast_elections_are_sorted_out_epoch_by_epoch() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await copied(one, two, b"a")
        for epoch in (1, 3, 5):  # they lead in turn, and the other one never hears of it
            await one.order(-1, epoch)
            await two.order(2, epoch)
            put(two, b"two in %d" % epoch)
            await two.order(-1, epoch + 1)
            await one.order(1, epoch + 1)
            put(one, b"one in %d" % epoch, b"more of one in %d" % epoch)
        await lead(two, one, 7)
        put(two, b"b")
        await until(lambda: log_files(one) == log_files(two))
        assert one.replica().log.leader_epochs.entries == two.replica().log.leader_epochs.entries
        assert [offset for offset, _ in one.replica().log.leader_epochs.entries] == [0, 1, 3, 5, 7]

    cuts = named(play(scene), "follower_cut")
    assert [cut["to_offset"] for cut in cuts] == [5, 3, 1]


def test_a_log_is_cut_below_its_start_when_the_leaders_history_ends_there() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await copied(one, two, b"a", b"b", b"c")
        await lead_alone(one, two, *[b"lost"] * 4)
        one.replica().log.advance_start(5)
        await lead(two, one, 2)
        put(two, b"d")
        await until(lambda: same(one, two))
        log = one.replica().log
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)
        assert contents(log) == [(3, b"d")]
        assert log.leader_epochs.entries == ((2, 3),)

    play(scene)


def test_far_behind_the_leaders_start_the_log_begins_anew() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await copied(one, two, b"a", b"b")
        network.cut_off.add(one.id)
        put(one, *[b"%d" % number for number in range(20)])
        one.replica().log.advance_start(15)
        network.cut_off.clear()
        await until(lambda: same(one, two))
        assert two.replica().log.log_start_offset == 15
        assert contents(two.replica().log) == contents(one.replica().log)
        await until(lambda: two.replica().high_watermark == 22)

    (begun,) = named(play(scene), "follower_restarted")
    assert (begun["from_offset"], begun["to_offset"]) == (2, 15)


def test_a_leaders_log_may_start_within_a_batch() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await one.order(1, 0)
        put(one, b"a")
        one.replica().append(build([b"b", b"c", b"d"]), acks=1, now_ms=NOW_MS)
        put(one, b"e")
        one.replica().log.advance_start(2)
        await two.order(1, 0)
        await until(lambda: same(one, two))
        assert two.replica().log.log_start_offset == 2
        assert contents(two.replica().log) == contents(one.replica().log)
        put(one, b"f")
        await until(lambda: same(one, two))
        assert two.fetchers.counts.corrupt == 0

    play(scene)


def test_an_offset_is_asked_for_once_everything_below_is_as_durable_as_the_topic_asks() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        asked: list[int] = []

        def look(request: FetchRequest) -> None:
            for wanted in (wanted for topic in request.topics for wanted in topic.partitions):
                assert wanted.fetch_offset <= two.replica(wanted.partition).log.flushed_end
                asked.append(wanted.fetch_offset)

        network.overhear = look
        await lead(one, two, 0, 0, 1)
        for number in range(10):
            put(one, b"a", b"b", number=number % 2)
            await asyncio.sleep(0.001)
        await until(lambda: max(asked, default=0) == 10 and same(one, two, 0) and same(one, two, 1))
        await two.order(2, 1, 0)  # and what it has as a leader, before it follows again
        two.replica().log.append(build([b"c"]), 1, now_ms=NOW_MS)
        await lead(one, two, 2)
        await until(lambda: same(one, two))

    play(scene, config=LogConfig(flush_messages=1))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event]]:
    """A cut tells that it has begun, and waits to be let go."""
    begun, released = Event(), Event()
    cut = Log.truncate_to

    def wait_and_cut(log: Log, offset: int) -> None:
        begun.set()
        assert released.wait(30)
        cut(log, offset)

    monkeypatch.setattr(Log, "truncate_to", wait_and_cut)
    yield begun, released
    released.set()


async def cutting(one: HostingNode, two: HostingNode, begun: Event) -> None:
    """Node 1 led and has a record too many; it is cutting it off."""
    await lead(one, two, 0, 1)
    await copied(one, two, b"a", b"b")
    await lead_alone(one, two, b"lost")
    await lead(two, one, 2)
    await until(begun.is_set)


def test_nobody_reads_a_log_while_it_is_cut_and_other_partitions_go_on(held: tuple[Event, Event]) -> None:
    begun, released = held

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await cutting(one, two, begun)
        with pytest.raises(ProtocolError) as refused:
            one.replica().read(0, max_bytes=1, up_to=3, min_one_batch=True)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await lead(two, one, 3, 1)
        put(two, b"x", number=1)
        await until(lambda: same(one, two, 1))
        assert one.replica().log.log_end_offset == 3
        released.set()
        await until(lambda: same(one, two))
        assert contents(one.replica().log) == contents(two.replica().log)

    play(scene)


def test_an_order_to_lead_waits_for_the_end_of_a_cut(held: tuple[Event, Event]) -> None:
    begun, released = held

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await cutting(one, two, begun)
        order = asyncio.create_task(one.order(1, 3))
        await asyncio.sleep(0.01)
        assert not one.replica().machine.is_leader
        released.set()
        await order
        assert one.replica().machine.log_end_offset == one.replica().log.log_end_offset == 2
        put(one, b"c")
        assert contents(one.replica().log) == [(0, b"a"), (1, b"b"), (2, b"c")]

    play(scene)


@pytest.mark.parametrize("delete", [True, False])
def test_an_order_to_stop_waits_for_the_end_of_a_cut(held: tuple[Event, Event], delete: bool) -> None:
    begun, released = held

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await cutting(one, two, begun)
        order = asyncio.create_task(one.stop(delete=delete))
        await asyncio.sleep(0.01)
        assert not order.done()
        released.set()
        assert await order == ErrorCode.NONE
        assert one.replicas.get("flights", 0) is None
        assert one.fetchers.partition_count == 0

    play(scene)


def test_a_new_epoch_waits_for_the_end_of_a_cut_and_goes_on_from_there(held: tuple[Event, Event]) -> None:
    begun, released = held

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await cutting(one, two, begun)
        order = asyncio.create_task(lead(two, one, 3))
        await asyncio.sleep(0.01)
        released.set()
        await order
        put(two, b"c")
        await until(lambda: same(one, two))
        assert contents(one.replica().log) == [(0, b"a"), (1, b"b"), (2, b"c")]

    play(scene)


def held_back(node: HostingNode) -> list[Coroutine[Any, Any, None]]:
    """What the fetchers of a node start from now on: it has not begun."""
    works: list[Coroutine[Any, Any, None]] = []
    node.fetchers._around = replace(node.fetchers._around, start=works.append)
    return works


def test_an_order_to_lead_that_comes_before_a_cut_has_begun_ends_it() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        works = held_back(one)
        await copied(two, one, b"a", b"b")
        await lead_alone(one, two, b"kept")
        await lead(two, one, 2)
        await until(lambda: bool(works))
        await one.order(1, 3)
        put(one, b"new")
        await works.pop()
        assert [value for _, value in contents(one.replica().log)] == [b"a", b"b", b"kept", b"new"]
        assert one.replica().machine.log_end_offset == 4

    play(scene)


def test_an_order_to_lead_that_comes_before_a_log_has_begun_anew_keeps_what_it_has() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        works = held_back(one)
        await copied(two, one, b"a")
        await one.order(-1, 1)
        await two.order(2, 1)
        put(two, b"b", b"c")
        two.replica().log.advance_start(3)
        await lead(two, one, 2)
        await until(lambda: bool(works))
        await one.order(1, 3)
        await works.pop()
        assert contents(one.replica().log) == [(0, b"a")]

    assert not named(play(scene), "follower_restarted")


def test_a_new_epoch_that_comes_before_a_cut_has_begun_asks_anew_where_to_cut() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        works = held_back(one)
        await copied(two, one, b"a", b"b")
        await lead_alone(one, two, b"lost")
        await lead(two, one, 2)
        await until(lambda: bool(works))
        await two.order(2, 3)
        await one.order(2, 3)
        await works.pop(0)
        assert one.fetchers.counts.cuts == 0
        await until(lambda: bool(works))
        await works.pop()
        await until(lambda: same(one, two))

    play(scene)


def test_the_end_of_a_node_waits_for_the_end_of_a_cut(held: tuple[Event, Event]) -> None:
    begun, released = held
    logs: list[Log] = []

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await cutting(one, two, begun)
        asyncio.get_running_loop().call_later(0.01, released.set)
        logs.append(one.replica().log)

    play(scene)
    assert logs[0].log_end_offset == 2


# Roles


def test_a_partition_that_is_stopped_or_led_is_followed_no_more() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0, 0, 1)
        assert two.fetchers.partition_count == 2
        await two.stop(1)
        assert two.fetchers.partition_count == 1
        await two.order(2, 1)
        assert (two.fetchers.partition_count, len(two.fetchers._fetchers)) == (0, 0)
        await two.order(-1, 2)
        assert two.fetchers.partition_count == 0

    play(scene)


def test_an_order_that_comes_between_two_stretches_ends_the_append() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        network.cut_off.add(one.id)
        put(one, *[bytes(50_000)] * 20)
        network.cut_off.clear()
        await until(lambda: two.replica().log.log_end_offset > 0)
        await two.order(2, 1)
        end = two.replica().log.log_end_offset
        for _ in range(50):
            await asyncio.sleep(0)
        assert two.replica().log.log_end_offset == two.replica().machine.log_end_offset == end
        put(two, b"of epoch 1")
        assert two.replica().log.leader_epochs.epoch_at(end) == 1

    play(scene, config=LogConfig())


def test_a_leader_that_cannot_be_reached_is_tried_again() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        network.cut_off.add(one.id)
        await lead(one, two, 0)
        put(one, b"a")
        await until(lambda: two.fetchers.counts.failed_requests >= 3)
        network.cut_off.clear()
        await until(lambda: same(one, two))

    logs = play(scene)
    assert len(named(logs, "leader_not_reached")) == 1
    assert len(named(logs, "leader_reached")) == 1


def test_an_order_takes_back_a_question_that_the_leader_lets_wait() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        two.fetchers._around = replace(two.fetchers._around, bounds=FetchBounds(wait_ms_max=600_000))
        await lead(one, two, 0, 0)
        await until(lambda: bool(network.waiting))
        await lead(one, two, 0, 1, 2)
        put(one, b"a", number=1)
        put(one, b"b", number=2)
        await until(lambda: same(one, two, 1) and same(one, two, 2))
        assert two.fetchers.counts.failed_requests == 0

    assert not named(play(scene), "leader_not_reached")


def test_a_new_epoch_ends_the_wait_for_a_leader_that_could_not_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "BACKOFF_MS_MIN", 600_000)

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        two.fetchers._around = replace(two.fetchers._around, bounds=FetchBounds(backoff_ms=600_000))
        network.cut_off.add(one.id)
        await lead(one, two, 0)
        put(one, b"a")
        await until(lambda: two.fetchers.counts.failed_requests == 1)
        network.cut_off.clear()
        await lead(one, two, 1)
        await until(lambda: same(one, two))

    play(scene)


def test_a_leader_that_does_not_lead_yet_is_asked_again_soon() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await two.order(1, 0)
        await until(lambda: two.fetchers.counts.requests >= 2)
        await one.order(1, 0)
        put(one, b"a")
        await until(lambda: same(one, two))

    assert len(named(play(scene), "fetch_refused")) == 1


# Failures


def test_damaged_records_are_never_stored_and_hold_back_no_other_partition() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        def flip(response: FetchResponse) -> None:
            for answer in response.responses[0].partitions:
                if answer.partition_index == 0 and answer.records:
                    damaged = bytearray(answer.records)
                    damaged[-1] ^= 1
                    answer.records = damaged

        network.damage = flip
        await lead(one, two, 0, 0, 1)
        put(one, b"a")
        put(one, b"b", number=1)
        await until(lambda: same(one, two, 1) and two.fetchers.counts.corrupt >= 2)
        assert two.replica().log.log_end_offset == 0
        network.damage = lambda response: None
        await until(lambda: same(one, two))
        assert log_files(one) == log_files(two)

    assert len(named(play(scene), "fetched_records_corrupt")) == 1


@pytest.mark.parametrize("keeps", [0, 5, 40])
def test_an_answer_without_a_whole_batch_is_asked_for_again_after_a_rest(keeps: int) -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        torn: list[int] = []

        def tear(response: FetchResponse) -> None:
            for answer in response.responses[0].partitions:
                if answer.records and len(torn) < 3:
                    answer.records = bytes(answer.records)[:keeps]
                    torn.append(len(answer.records))

        network.damage = tear
        await copied(one, two, b"a")
        assert two.fetchers.counts.corrupt == (3 if keeps else 0)

    play(scene)


def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        disk = two.disk
        assert isinstance(disk, MemoryDisk)
        space = two.replica().free_space
        disk.space_left = 100
        space.measured(disk.space(Path("/data")))
        put(one, *[b"%d" % number for number in range(20)])
        await until(lambda: two.fetchers.counts.refused_for_space >= 2)
        assert space.is_full
        disk.space_left = None
        space.measured(disk.space(Path("/data")))
        await until(lambda: same(one, two))
        assert log_files(one) == log_files(two)

    assert len(named(play(scene), "follower_waits_for_room")) == 1


def test_a_disk_that_turns_out_to_be_full_keeps_what_was_written_whole() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        disk = two.disk
        assert isinstance(disk, MemoryDisk)
        put(one, b"a")
        await until(lambda: same(one, two))
        disk.space_left = 300
        two.replica().free_space._left = 1 << 30  # others wrote there meanwhile
        put(one, *[b"%d" % number for number in range(20)])
        await until(lambda: two.replica().free_space.is_full)
        assert two.replica().machine.log_end_offset == two.replica().log.log_end_offset
        disk.space_left = None
        two.replica().free_space.measured(disk.space(Path("/data")))
        await until(lambda: same(one, two))
        assert log_files(one) == log_files(two)

    play(scene)


def test_a_failed_disk_takes_its_partitions_offline_and_others_go_on() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0, 0, 1)
        lost = two.replica(0).log.directory.parent
        assert two.replica(1).log.directory.parent != lost
        disk = two.disk
        assert isinstance(disk, MemoryDisk)
        disk.failed_roots.add(lost)
        put(one, b"a")
        await until(lambda: two.failed == [lost])
        await two.replicas.directory_failed(lost)
        put(one, b"b", number=1)
        await until(lambda: same(one, two, 1))
        assert two.replicas.is_offline("flights", 0)
        assert two.fetchers.partition_count == 1

    play(scene, follower=memory("first", "second"))


def test_a_cut_that_fails_leaves_the_partition_to_its_failed_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()
    cut = followed_log.cut

    async def note_and_cut(replica: Replica, offset: int, executor: Executor) -> None:
        begun.set()
        await cut(replica, offset, executor)

    monkeypatch.setattr(followed_log, "cut", note_and_cut)

    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        disk = one.disk
        assert isinstance(disk, MemoryDisk)
        await copied(one, two, b"a", b"b")
        await lead_alone(one, two, b"lost")
        disk.syncs_fail = True
        await lead(two, one, 2)
        await until(lambda: bool(one.failed))
        assert begun.is_set()
        await one.replicas.directory_failed(one.failed[0])
        assert one.fetchers.partition_count == 0
        disk.syncs_fail = False

    assert named(play(scene), "followed_log_failed")


def test_a_damaged_log_that_is_to_be_cut_stays_as_it_is_and_holds_back_no_other_partition() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0, 0, 1)
        put(one, b"a", b"b")
        await until(lambda: same(one, two))
        await lead_alone(one, two, *[b"lost" * 20] * 8)
        log = one.replica().log
        (path, *_) = [segment.log.path for segment in log.segments]
        file = one.disk.open(path)
        file.pwrite(b"\x7f", 16)  # magic of the first batch
        file.close()
        log.segments[0]._positions.clear()
        before = log_files(one)
        assert len(before) > 1
        await lead(two, one, 2, 0, 1)
        await until(lambda: one.fetchers.counts.cuts >= 2)
        assert log_files(one) == before
        put(two, b"x", number=1)
        await until(lambda: same(one, two, 1))

    (failed,) = named(play(scene, config=replace(SMALL, index_interval_bytes=4096)), "followed_log_failed")
    assert failed["reason"]


# Stretches


def test_an_answer_is_appended_in_stretches_of_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "STRETCH_BYTES", 300)
    monkeypatch.setattr(followed_log, "STRETCH_BATCHES", 3)
    batches = [bytes(build([bytes(size)])) for size in (1, 1, 1, 1, 500, 1, 100, 100, 1)]
    data = memoryview(b"".join(batches))
    for torn in (0, 1, 30):
        whole = len(data) - torn
        parts = [bytes(part) for part in followed_log.stretches(data[:whole])]
        assert b"".join(parts) == b"".join(batches[: None if not torn else -1])
        assert all(len(part) <= 300 or part in batches for part in parts)
        assert max(sum(batch in part for batch in set(batches)) for part in parts) <= 3


# Moves between log directories


def test_a_follower_that_moves_to_another_log_directory_goes_on_there() -> None:
    async def scene(one: HostingNode, two: HostingNode, network: Network) -> None:
        await lead(one, two, 0)
        source = two.replica().log.directory.parent
        (target,) = set(two.directories.live) - {source}
        moves = LogMoves(two.replicas, executor=two.executor, copies_max=1)
        moving = asyncio.create_task(moves.run())
        put(one, *[b"%d" % number for number in range(30)])
        await until(lambda: two.replica().log.log_end_offset > 0)
        assert await moves.ask(two.replica().topic_partition, target) is ErrorCode.NONE
        while (replica := two.replicas.get("flights", 0)) is None or replica.log.directory.parent != target:
            put(one, b"more")
            await asyncio.sleep(0.001)
        put(one, b"last")
        await until(lambda: same(one, two))
        assert contents(two.replica().log) == contents(one.replica().log)
        assert two.fetchers.partition_count == 1
        moving.cancel()
        await asyncio.wait([moving])

    play(scene, follower=memory("first", "second"))
