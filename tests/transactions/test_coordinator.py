"""The coordinator on a log and leaders in memory: what survives, who is sent away, how ends are completed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import count

import pytest

from broker.coordinators.record_batches import NO_PRODUCER, ProducerIdentity
from broker.errors import ErrorCode, ProtocolError
from broker.transactions.config import TransactionConfig
from broker.transactions.coordinator import ListFilter, TransactionCoordinator
from broker.transactions.events import Reply
from broker.transactions.markers import Markers
from broker.transactions.state import State
from broker.transactions.transaction import EPOCH_LAST
from broker.types import TopicPartition
from tests.coordinators.memory_log import MemoryLog
from tests.coordinators.virtual_time import VirtualClock, run
from tests.transactions.memory_leaders import MemoryLeaders, partitions

NONE = ErrorCode.NONE
TIMEOUT_MS = 60_000
CONFIG = TransactionConfig(id_expiration_ms=3_600_000, expiry_check_interval_ms=600_000)
FLIGHTS = partitions("flights", range(3))


class Node:
    """A coordinator with its log, and the requests that the tests send to it."""

    def __init__(self, log: MemoryLog, leaders: MemoryLeaders, coordinator: TransactionCoordinator) -> None:
        self.log = log
        self.leaders = leaders
        self.coordinator = coordinator

    async def init(self, name: str = "desk", expected: ProducerIdentity | None = None) -> ProducerIdentity:
        reply = await self.coordinator.initialise(name, timeout_ms=TIMEOUT_MS, expected=expected)
        assert reply.error is NONE
        return reply.producer

    async def begin(self, producer: ProducerIdentity, name: str = "desk") -> None:
        assert await self.coordinator.add_partitions(name, producer, FLIGHTS) is NONE

    async def end(
        self, producer: ProducerIdentity, *, commits: bool = True, version: int = 0, name: str = "desk"
    ) -> Reply:
        return await self.coordinator.end(name, producer, commits=commits, version=version)

    def state(self, name: str = "desk") -> State:
        return self.coordinator.describe(name).state

    async def until(self, state: State, name: str = "desk") -> None:
        while self.state(name) is not state:  # noqa: ASYNC110  # the state tells nobody of its change
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def node(
    log: MemoryLog | None = None, leaders: MemoryLeaders | None = None, *, leader_epoch: int = 1
) -> AsyncIterator[Node]:
    log, leaders, ids = log or MemoryLog(), leaders or MemoryLeaders(), count(1000 * leader_epoch)

    async def new_producer_id() -> int:
        await asyncio.sleep(0)
        return next(ids)

    coordinator = TransactionCoordinator(
        log,
        VirtualClock(),
        CONFIG,
        Markers(leaders),
        new_producer_id=new_producer_id,
        value_version=lambda: 1,
    )
    async with coordinator:
        for partition in range(log.partition_count):
            await coordinator.on_elected(partition, leader_epoch)
        yield Node(log, leaders, coordinator)


def scenario(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test on virtual time."""

    def on_virtual_time() -> None:
        run(test())

    on_virtual_time.__name__, on_virtual_time.__doc__ = test.__name__, test.__doc__
    return on_virtual_time


@scenario
async def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions() -> None:
    async with node() as here:
        producer = await here.init()
        await here.begin(producer)
        assert here.state() is State.ONGOING
        assert (await here.end(producer)).error is NONE
        await here.until(State.COMPLETE_COMMIT)
        expected = {(partition, *producer, True, 1) for partition in FLIGHTS}
        assert set(here.leaders.written) == expected
        assert here.coordinator.markers.under_way_count == 0


@scenario
async def test_markers_of_several_transactions_share_a_request() -> None:
    async with node() as here:
        names = [f"desk-{number}" for number in range(20)]
        producers = {name: await here.init(name) for name in names}
        for name, producer in producers.items():
            await here.begin(producer, name)
        here.leaders.gate.clear()
        for name, producer in producers.items():
            await here.end(producer, name=name)
        await asyncio.sleep(1)
        assert len(here.leaders.requests) == len(FLIGHTS), "one for each node, the others wait"
        here.leaders.gate.set()
        for name in names:
            await here.until(State.COMPLETE_COMMIT, name)
        assert len(here.leaders.requests) == 2 * len(FLIGHTS)


@scenario
async def test_what_was_decided_survives_the_coordinator() -> None:
    log, leaders = MemoryLog(), MemoryLeaders()
    leaders.unreachable = {0, 1, 2}
    async with node(log, leaders) as here:
        done, open_one, ended = await here.init("done"), await here.init("open"), await here.init("ended")
        await here.begin(open_one, "open")
        await here.begin(ended, "ended")
        assert (await here.end(ended, commits=False, name="ended")).error is NONE
        assert here.state("ended") is State.PREPARE_ABORT
    leaders.unreachable = set()
    async with node(log, leaders, leader_epoch=2) as there:
        await there.until(State.COMPLETE_ABORT, "ended")
        assert set(leaders.written) == {(partition, *ended, False, 2) for partition in FLIGHTS}
        assert there.state("open") is State.ONGOING
        assert (await there.end(open_one, name="open")).error is NONE
        await there.until(State.COMPLETE_COMMIT, "open")
        assert await there.init("done") == ProducerIdentity(done.producer_id, 1)


@scenario
async def test_a_partition_that_refuses_is_tried_again_and_one_that_is_gone_is_not_waited_for() -> None:
    async with node() as here:
        first, second, third = sorted(FLIGHTS)
        here.leaders.answers = {
            first: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS],
            second: [ErrorCode.INVALID_PRODUCER_EPOCH],
        }
        producer = await here.init()
        await here.begin(producer)
        here.leaders.gone.add(third)
        await here.end(producer)
        await here.until(State.COMPLETE_COMMIT)
        assert here.leaders.marked() == {first}


@scenario
async def test_an_end_waits_for_a_leader_as_long_as_it_takes() -> None:
    async with node() as here:
        first, *_ = sorted(FLIGHTS)
        here.leaders.led_by[first] = None
        producer = await here.init()
        await here.begin(producer)
        await here.end(producer)
        await asyncio.sleep(3600)
        assert here.state() is State.PREPARE_COMMIT
        here.leaders.led_by[first] = 9
        await here.until(State.COMPLETE_COMMIT)
        assert here.leaders.marked() == FLIGHTS


@scenario
async def test_a_coordinator_that_was_deposed_writes_no_more() -> None:
    async with node() as here:
        producer = await here.init()
        await here.begin(producer)
        first, *_ = sorted(FLIGHTS)
        here.leaders.answers = {first: [ErrorCode.TRANSACTION_COORDINATOR_FENCED]}
        await here.end(producer)
        await asyncio.sleep(60)
        assert here.state() is State.PREPARE_COMMIT
        assert first not in here.leaders.marked()
        assert here.coordinator.markers.under_way_count == 0


@scenario
async def test_whoever_resigned_sends_producers_away() -> None:
    async with node() as here:
        producer = await here.init()
        await here.begin(producer)
        number = here.coordinator.partition_of("desk")
        here.log.gate.clear()
        ending = asyncio.create_task(here.end(producer))
        await asyncio.sleep(0.01)
        here.coordinator.on_resigned(number)
        assert (await ending).error is ErrorCode.NOT_COORDINATOR
        assert (await here.end(producer)).error is ErrorCode.NOT_COORDINATOR
        here.log.gate.set()
        await here.coordinator.on_elected(number, 2)
        assert here.state() is State.ONGOING
        assert (await here.end(producer)).error is NONE


@scenario
async def test_nobody_is_served_while_the_log_is_read() -> None:
    log = MemoryLog()
    async with node(log) as here:
        producer = await here.init()
        await here.begin(producer)
        number = here.coordinator.partition_of("desk")
        here.coordinator.on_resigned(number)
        log.reading.clear()
        reading = asyncio.create_task(here.coordinator.on_elected(number, 2))
        await asyncio.sleep(0.01)
        assert (await here.end(producer)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert here.coordinator.is_loading
        log.reading.set()
        await reading
        assert (await here.end(producer)).error is NONE


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_the_log_refuses_has_not_happened(refusal: ErrorCode, told: ErrorCode) -> None:
    async def test() -> None:
        async with node() as here:
            here.log.refuses = refusal
            refused = await here.coordinator.initialise("desk", timeout_ms=TIMEOUT_MS, expected=None)
            assert refused.error is told
            with pytest.raises(ProtocolError):
                here.coordinator.describe("desk")
            assert here.coordinator.id_count == 0
            here.log.refuses = None
            producer = await here.init()
            await here.begin(producer)
            here.log.refuses = refusal
            assert (await here.end(producer)).error is told
            assert here.state() is State.ONGOING
            here.log.refuses = None
            assert (await here.end(producer)).error is NONE

    run(test())


@scenario
async def test_an_end_whose_completion_the_log_refuses_is_completed_later() -> None:
    async with node() as here:
        producer = await here.init()
        await here.begin(producer)
        here.leaders.gate.clear()
        await here.end(producer)
        here.log.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        here.leaders.gate.set()
        await asyncio.sleep(10)
        assert here.state() is State.PREPARE_COMMIT
        here.log.refuses = None
        await here.until(State.COMPLETE_COMMIT)
        assert len(here.leaders.written) == len(FLIGHTS)


@scenario
async def test_transactions_that_take_too_long_are_aborted() -> None:
    async with node() as here:
        producer = await here.init()
        await here.begin(producer)
        await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
        assert here.state() is State.ONGOING
        await asyncio.sleep(1 + CONFIG.timeout_check_interval_ms / 1000)
        await here.until(State.COMPLETE_ABORT)
        bumped = ProducerIdentity(producer.producer_id, producer.epoch + 1)
        assert set(here.leaders.written) == {(partition, *bumped, False, 1) for partition in FLIGHTS}
        assert (await here.end(producer)).error is ErrorCode.PRODUCER_FENCED


@scenario
async def test_ids_that_nobody_uses_are_forgotten() -> None:
    log = MemoryLog()
    async with node(log) as here:
        await here.init("idle")
        busy = await here.init("busy")
        await here.begin(busy, "busy")
        await asyncio.sleep(CONFIG.id_expiration_ms / 1000 + 1)
        listed = [listing.transactional_id for listing in here.coordinator.list(ListFilter())]
        assert listed == ["busy"], "its transaction was aborted, which counts as a use"
    async with node(log, leader_epoch=2) as there:
        assert [listing.transactional_id for listing in there.coordinator.list(ListFilter())] == ["busy"]


@scenario
@pytest.mark.long
async def test_a_rotated_producer_id_survives_the_coordinator() -> None:
    log = MemoryLog()
    async with node(log) as here:
        producer = await here.init()
        for _ in range(EPOCH_LAST):
            producer = await here.init()
        assert producer.epoch == EPOCH_LAST
        await here.begin(producer)
        here.leaders.gate.clear()
        told = (await here.end(producer, version=2)).producer
        assert told.epoch == 0
        assert told.producer_id != producer.producer_id
    async with node(log, leader_epoch=2) as there:
        await there.until(State.COMPLETE_COMMIT)
        assert {(each[1], each[2]) for each in there.leaders.written} == {
            (producer.producer_id, EPOCH_LAST + 1)
        }
        markers = [marker for _, request in there.leaders.requests for marker in request.markers]
        assert {marker.transaction_version for marker in markers} == {2}
        assert (await there.end(producer, version=2)).producer == told, "repeated as its answer was lost"
        await there.begin(told)


@scenario
async def test_lists_are_filtered() -> None:
    async with node() as here:
        idle, busy = await here.init("idle"), await here.init("busy")
        await here.begin(busy, "busy")
        await asyncio.sleep(5)

        def names(**wanted: object) -> list[str]:
            return sorted(
                listing.transactional_id
                for listing in here.coordinator.list(ListFilter(**wanted))  # type: ignore[arg-type]
            )

        assert names() == ["busy", "idle"]
        assert names(states=frozenset({"Ongoing"})) == ["busy"]
        assert names(states=frozenset({"CompleteAbort"})) == []
        assert names(producer_ids=frozenset({idle.producer_id})) == ["idle"]
        assert names(open_longer_than_ms=10_000, states=frozenset({"Ongoing"})) == []
        assert names(open_longer_than_ms=4_000, states=frozenset({"Ongoing"})) == ["busy"]
        assert here.coordinator.open_count == 1


@scenario
async def test_what_makes_no_sense_is_refused() -> None:
    async with node() as here:
        ask = here.coordinator.initialise
        assert (await ask("", timeout_ms=1, expected=None)).error is ErrorCode.INVALID_REQUEST
        for timeout_ms in (0, -1, CONFIG.timeout_max_ms + 1):
            refused = await ask("desk", timeout_ms=timeout_ms, expected=None)
            assert refused == Reply(error=ErrorCode.INVALID_TRANSACTION_TIMEOUT, producer=NO_PRODUCER)
        producer = ProducerIdentity(1, 0)
        assert await here.coordinator.add_partitions("", producer, FLIGHTS) is ErrorCode.INVALID_REQUEST
        unknown = dict.fromkeys(FLIGHTS, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert here.coordinator.verify("nobody", producer, FLIGHTS) == unknown


@scenario
async def test_while_the_topic_does_not_exist_there_is_no_coordinator() -> None:
    async with node(MemoryLog(partition_count=0)) as here:
        refused = await here.coordinator.initialise("desk", timeout_ms=1, expected=None)
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        nowhere = {TopicPartition("flights", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert here.coordinator.verify("desk", ProducerIdentity(1, 0), nowhere) == nowhere
