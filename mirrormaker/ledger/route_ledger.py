"""The ledger of a route at work: written as records arrive, followed, and kept small.

It lives in a compacted topic at the destination (`LEDGER_TOPIC`), which all routes to there share. Pages are
written before the positions that they lead to are committed: a crash leaves no hole in the ledger, and what
was copied and not yet written down is copied again, from the committed position on. Of whom such copies are
show notes of the producers, written before the first record is sent. Where delivery is exactly once pages are
part of the transactions instead (`bucket_ledger`). While the topic cannot be written positions wait; where
the mirror has no right to it, copying goes on without, and says so. At most once positions come before
records, and pages after them, but for those that say that the source has another log than before.

Owned by the route's event loop; `run` is a task of it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from uuid import uuid4

from broker.client.cluster import Cluster
from broker.client.offsets import EARLIEST, Listed, list_offsets_found
from broker.client.operations import DESCRIBE, WRITE
from broker.clock import Clock
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.books import BooksStanding, Reached, ReadSoFar, Written
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.kept_topic import BegunAnew, KeptTopic
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.positions import Place
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.ledger.bucket_ledger import BucketLedger
from mirrormaker.ledger.current_lanes import lane_between
from mirrormaker.ledger.lane_id import LEDGER_TOPIC, LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.page import RUNS_MAX
from mirrormaker.ledger.page_windows import PageWindows
from mirrormaker.ledger.producer_note import ProducerNote
from mirrormaker.ledger.recorder import LedgerRecorder
from mirrormaker.ledger.route_places import RoutePlaces, lane_positions
from mirrormaker.ledger.upkeep import former_records, upkeep_records
from mirrormaker.ledger.view import LedgerView
from mirrormaker.missing_rights import missing_right
from mirrormaker.topology.model import Delivery, RouteSpec

TOPIC_CONFIGS: Mapping[str, str] = {"segment.bytes": str(16 << 20), "segment.ms": str(3_600_000)}
"""Pages that grow are written again and again: small segments have them compacted soon."""
WRITE_TIMEOUT_MS = 10_000
READ_TIMEOUT_MS = 2_000
"""So long partitions that nothing is known of wait until it has been read; after that they are asked about
again.
"""
NOTE_ATTEMPTS, NOTE_WAITS, NOTE_WAIT_MS = 3, 30, 500
"""Attempts to note a producer before it sends anything, and looks for the topic where that is not at hand;
then copying goes on, and it is noted as soon as may be.
"""
RETRY_MS = 5_000
UPKEEP_MS = 60_000
STARTS_TIMEOUT_MS = 2_000
"""So long partitions whose leaders are not found hold up what is kept small, and what waits for that."""
WRITE_INTERVAL_MS = 1_000
"""Where positions are committed first."""
TRANSACTED_RUNS_MAX = 32
"""A transaction's marker ends a run at the destination, and the page at hand is written in each: so pages are
short, until upkeep joins them.
"""
REFUSED_MS = 60_000
"""So long after the right to write was missed it is not tried again."""
PENDING_PAGES_MAX = 16_384
"""Full pages that wait to be written; more than that are given up."""

_REFUSALS = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class RouteLedger:
    """See the module. Clusters come started."""

    def __init__(self, route: RouteSpec, source: Cluster, destination: Cluster, clock: Clock) -> None:
        self.note: Callable[..., None] = lambda event, **details: None
        """Takes events for `status`."""
        self.on_begun_anew: BegunAnew | None = None
        """See `KeptTopic`."""
        self.view = LedgerView(source.cluster_id)
        self.problem: str | None = None
        """Why it is not written, or not read, just now."""
        self.is_read = False
        """`view` has all that there was when the topic was taken up, and follows."""
        self.pages_given_up = 0
        self._route = route.name
        self._source = source
        self._destination = destination
        self._places = RoutePlaces(
            route.name,
            self.view,
            destination,
            self.lane,
            may_repeat=route.delivery is not Delivery.AT_MOST_ONCE,
        )
        is_transacted = route.delivery is Delivery.EXACTLY_ONCE
        self._windows = PageWindows(span_ms=route.objectives.audit_window_ms, now_ms=clock.now_ms)
        self.recorder = LedgerRecorder(
            uuid4().hex[:8],
            TRANSACTED_RUNS_MAX if is_transacted else RUNS_MAX,
            windows=self._windows,
            route=route.name if route.topics.merge else None,
        )
        self.upkeep: dict[TopicPartition, tuple[Entry, ...]] = {}
        """See `bucket_ledger.Whole`."""
        self._refused_until_ms = 0
        self._gone: set[TopicPartition] = set()
        """Partitions that the destination did not have when it was kept small last. What is told of these is
        deleted if it has them the next time no more than then: a node that starts knows of none at first.
        """
        self._on_change: list[Callable[[], None]] = []
        self._assignments: dict[TopicPartition, Assignment] = {}
        self._read: dict[TopicPartition, ReadSoFar] = {}
        """Of the same."""
        self._topic: KeptTopic | None = None
        self._producers: set[int] = set()
        """Under these ids records of this process are sent."""
        self._unnoted: set[int] = set()
        """Those of them that the topic does not tell of."""
        self._is_refused = False
        self._is_sought = asyncio.Event()
        """The topic is at hand, or could not be had."""
        self._is_known = asyncio.Event()
        """It has been read, or never will be."""
        self._delivery = route.delivery
        self._clock = clock
        self._log = logger("ledger").bind(route=route.name)

    def change(self, route: RouteSpec) -> None:
        """Other windows from now on."""
        self._windows.span_ms = route.objectives.audit_window_ms

    async def run(self) -> None:
        """Keep the topic at hand, and what is in it small, until cancelled."""
        while True:
            try:
                self.view.clear()
                async with KeptTopic(
                    self._destination,
                    LEDGER_TOPIC,
                    configs=TOPIC_CONFIGS,
                    timeout_ms=WRITE_TIMEOUT_MS,
                    view=self.view,
                    on_begun_anew=self.on_begun_anew,
                ) as topic:
                    self._topic, self.problem, self._is_refused = topic, None, False
                    self._unnoted |= self._producers
                    self._is_sought.set()
                    self._tell_change()
                    await topic.read_to_end()
                    self._is_known.set()
                    self.is_read = True
                    await self._work(topic)
            except BrokerError as error:
                self._is_known.clear()
                self._take_failure(error)
            finally:
                self._topic, self.is_read = None, False
            await asyncio.sleep(RETRY_MS / 1000)

    async def _work(self, topic: KeptTopic) -> None:
        """Raises BrokerError."""
        kept_up_ms, incarnation = self._clock.monotonic_ms(), topic.incarnation
        while True:
            await asyncio.sleep(WRITE_INTERVAL_MS / 1000)
            if code := self._hidden_by():
                raise missing_right(code, self._destination.name, LEDGER_TOPIC, DESCRIBE)
            topic.check_follower()
            if topic.incarnation != incarnation:
                incarnation = topic.incarnation
                self._unnoted |= self._producers
            await self._note_producers()
            if self._delivery is Delivery.AT_MOST_ONCE:
                await self._write_due()
            if self._clock.monotonic_ms() - kept_up_ms > UPKEEP_MS:
                await self._keep_up(topic)
                kept_up_ms = self._clock.monotonic_ms()

    def _hidden_by(self) -> ErrorCode | None:
        """Why the topic cannot be seen, where a right is missing: nobody can write it then."""
        known = self._destination.topics.get(LEDGER_TOPIC)
        return known.error if known is not None and known.error in _REFUSALS else None

    def _tell_change(self) -> None:
        for tell in self._on_change:
            tell()

    def _take_failure(self, error: BrokerError) -> None:
        """It cannot be had, read or written; a refusal counts until it is had, or written, again."""
        self._is_refused = isinstance(error, AuthenticationError | ConfigurationError) or (
            isinstance(error, ProtocolError) and error.code in _REFUSALS
        )
        if self._is_refused:
            self._is_known.set()
        self._is_sought.set()
        self._tell_problem(error)

    def _tell_problem(self, error: BrokerError) -> None:
        if self.problem is None:
            self.note("ledger_not_kept", error=str(error))
        self.problem = str(error)
        self._bound_pending()
        self._tell_change()

    # ---- in transactions; see `bucket_ledger.Whole`

    @property
    def standing(self) -> BooksStanding:
        """Whether the ledger can be written."""
        is_refused = self._is_refused or self._clock.monotonic_ms() < self._refused_until_ms
        if is_refused or self._hidden_by() is not None:
            return BooksStanding.REFUSED
        return BooksStanding.AWAITED if self._topic is None else BooksStanding.KEPT

    def refuse(self) -> None:
        """The mirror has no right to write it; it is tried again after a while."""
        self._refused_until_ms = self._clock.monotonic_ms() + REFUSED_MS
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._tell_problem(missing_right(code, self._destination.name, LEDGER_TOPIC, WRITE))

    def tell_written(self) -> None:
        """Nothing is wrong with it, as far as it is at hand."""
        if not self._is_refused:
            self.problem = None

    def of_bucket(self, on_change: Callable[[], None]) -> BucketLedger:
        """See `Books`."""
        if on_change not in self._on_change:
            self._on_change.append(on_change)
        return BucketLedger(self)

    # ---- what the copier tells; see `Books`

    async def introduce(self, producer_id: int, on_failure: Callable[[str], None]) -> None:
        if self._delivery is not Delivery.AT_LEAST_ONCE:
            return  # nothing is copied twice
        self._producers.add(producer_id)
        await self._is_sought.wait()
        # a process that stood still finds its attempt too late, or has to take the topic up anew
        failures = waits = 0
        while not self._is_refused and failures < NOTE_ATTEMPTS and waits < NOTE_WAITS:
            if self._topic is None:
                waits += 1
                await asyncio.sleep(NOTE_WAIT_MS / 1000)
            elif await self._put([self._note_of(producer_id)]):
                return
            else:
                failures += 1
                on_failure(self.problem or LEDGER_TOPIC)
        self._unnoted.add(producer_id)

    def begin(self, assignments: Iterable[Assignment], read: Mapping[TopicPartition, ReadSoFar]) -> None:
        for assignment in assignments:
            if assignment.source.topic == HEARTBEATS_TOPIC:
                continue  # nobody asks for the offsets of those
            self._assignments[assignment.source] = assignment
            self._read[assignment.source] = read[assignment.source]
            self._begin(assignment, lane_positions(assignment))

    def _begin(self, assignment: Assignment, positions: LanePositions) -> None:
        for lane, position in zip(self._lanes_of(assignment), positions, strict=True):
            self.recorder.begin(lane, position, self._read[assignment.source])

    async def written(
        self, assignments: Collection[Assignment], kept: Mapping[TopicPartition, Place]
    ) -> Written:
        if not await self._becomes_known():
            raise RequestTimedOutError(self.problem or f"{LEDGER_TOPIC} is still being read")
        return await self._places.written(assignments, kept)

    async def gone_on(self, assignments: Collection[Assignment]) -> Mapping[TopicPartition, LanePositions]:
        if self._delivery is Delivery.EXACTLY_ONCE or not await self._becomes_known():
            return {}  # its positions are where the records are
        try:
            async with asyncio.timeout(READ_TIMEOUT_MS / 1000):
                return await self._places.gone_on(assignments, self._read_on)
        except (BrokerError, TimeoutError) as error:
            self._log.info("ledger_not_asked", partitions=len(assignments), error=str(error))
            return {}

    async def _read_on(self) -> None:
        await self._at_hand().read_to_end()

    async def reached(self, assignments: Collection[Assignment]) -> Mapping[TopicPartition, Reached]:
        return self._places.reached(assignments) if await self._becomes_known() else {}

    async def _becomes_known(self) -> bool:
        try:
            async with asyncio.timeout(READ_TIMEOUT_MS / 1000):
                await self._is_known.wait()
        except TimeoutError:
            return False
        return True

    def end(self, sources: Collection[TopicPartition]) -> None:
        self.recorder.end(sources)
        for source in sources:
            self._assignments.pop(source, None)
            self._read.pop(source, None)
            self.upkeep.pop(source, None)

    def restart(self, source: TopicPartition, positions: LanePositions) -> None:
        assignment = self._assignments.get(source)
        if assignment is None:
            return
        if self.recorder.lanes(source) == self._lanes_of(assignment):
            self.recorder.restart(source, positions, self._ends_of(self.recorder.lanes(source)))
            return
        self.recorder.end([source])
        self._begin(assignment, positions)

    def _ends_of(self, lanes: Iterable[LaneId]) -> dict[LaneId, int]:
        """Where what is known of these ends at the destination."""
        ends = {
            lane: [page.to_next for page in self.view.lanes[lane].pages() if page.to_next is not None]
            for lane in lanes
            if lane in self.view.lanes
        }
        return {lane: max(found) for lane, found in ends.items() if found}

    def lose(self, source: TopicPartition, destination: TopicPartition, first: int, next_offset: int) -> None:
        self.recorder.lose(source, destination, first, next_offset)

    def take(self, copied: Copied) -> None:
        self.recorder.take(copied)

    async def write(
        self,
        positions: Mapping[TopicPartition, int],
        reached: Mapping[TopicPartition, LanePositions],
    ) -> Mapping[TopicPartition, int]:
        if self._delivery is Delivery.EXACTLY_ONCE:
            return positions  # these are in force already, and the pages with them
        self.recorder.advance(reached)
        owing: Collection[TopicPartition] = positions
        if self._delivery is Delivery.AT_MOST_ONCE:  # these come before the records: see `run`
            owing = self.recorder.owing_cuts(positions)
        if not owing or await self._write_due():
            return positions
        return {source: at for source, at in positions.items() if source not in owing}

    async def write_rest(self) -> None:
        if self._delivery is Delivery.AT_MOST_ONCE and self.recorder.pending_pages:
            await self._is_known.wait()
            await self._write_due()

    async def _write_due(self) -> bool:
        """Whether positions may be committed: it is written, or cannot ever be."""
        due = self.recorder.due()
        if not due.records:
            return True
        if not await self._put(due.records):
            return self._is_refused
        self.recorder.settled(due)
        return True

    async def _put(self, records: Collection[Entry]) -> bool:
        """Whether they are written."""
        if self._topic is None:
            return False
        try:
            await self._topic.put(records)
        except BrokerError as error:
            self._take_failure(error)
            return False
        self.problem, self._is_refused = None, False
        return True

    async def _note_producers(self) -> None:
        unnoted = frozenset(self._unnoted)
        if unnoted and await self._put([self._note_of(each) for each in unnoted]):
            self._unnoted -= unnoted

    def _note_of(self, producer_id: int) -> Entry:
        return ProducerNote(self._source.cluster_id, producer_id).record(self._clock.now_ms())

    def _bound_pending(self) -> None:
        if self.recorder.pending_pages > PENDING_PAGES_MAX:
            dropped = self.recorder.drop_pending()
            self.pages_given_up += dropped
            self.note("ledger_pages_given_up", pages=dropped, reason=self.problem)

    # ---- lanes

    def lane(self, source: TopicPartition, destination: TopicPartition) -> LaneId:
        """The lane between them, of the source's topic as it is now."""
        return lane_between(self._source, source, destination)

    def pages(self, source: TopicPartition, destination: TopicPartition) -> LaneLedger | None:
        """What has been written of a lane, by whomever; None: nothing."""
        return self.view.lanes.get(self.lane(source, destination))

    async def put(self, records: Collection[Entry]) -> None:
        """Write other records of the topic. Raises BrokerError."""
        await self._at_hand().put(records)

    def _at_hand(self) -> KeptTopic:
        """Raises BrokerError."""
        if self._topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self.problem or LEDGER_TOPIC)
        return self._topic

    @property
    def is_known(self) -> bool:
        """Whether it has been read to its end, or never will be."""
        return self._is_known.is_set()

    def _lanes_of(self, assignment: Assignment) -> list[LaneId]:
        return [self.lane(assignment.source, destination) for destination in assignment.destinations]

    # ---- upkeep

    async def _keep_up(self, topic: KeptTopic) -> None:
        """Write what keeps the lanes of this process small. Raises BrokerError when the topic cannot be
        written; partitions of which nothing is told are asked about the next time.
        """
        own = list(self._assignments.values())
        former = self._former_lanes(own)
        starts = await self._starts(self._source, {each.source for each in own})
        to_starts = await self._starts(self._destination, {lane.destination for lane in former})
        gone = {partition for partition, error in to_starts.failures.items() if _is_absence(error)}
        self._gone, gone = gone, gone & self._gone
        records: dict[TopicPartition, list[Entry]] = defaultdict(list)
        for assignment in own:
            for lane in self._lanes_of(assignment):
                if (ledger := self.view.lanes.get(lane)) is not None and lane.source in starts.found:
                    log_start = starts.found[lane.source].offset
                    records[lane.source] += upkeep_records(
                        lane, ledger, log_start, self._windows, self._route
                    )
        for lane in former:
            ledger, start = self.view.lanes.get(lane), to_starts.found.get(lane.destination)
            if ledger is not None and (start is not None or lane.destination in gone):
                records[lane.source] += former_records(lane, ledger, None if start is None else start.offset)
        if self._delivery is Delivery.EXACTLY_ONCE:
            self.upkeep = {source: tuple(each) for source, each in records.items() if each}
        elif any(records.values()):
            await topic.put([entry for each in records.values() for entry in each])
            self.tell_kept_up(sum(map(len, records.values())))

    def tell_kept_up(self, records: int) -> None:
        """So many that keep it small have been written."""
        self._log.info("ledger_kept_up", records=records)

    async def _starts(self, cluster: Cluster, partitions: Collection[TopicPartition]) -> Listed:
        """Where their logs begin."""
        listed = await list_offsets_found(
            cluster, dict.fromkeys(partitions, EARLIEST), timeout_ms=STARTS_TIMEOUT_MS
        )
        if listed.failures:
            error = str(next(iter(listed.failures.values())))
            self._log.info("ledger_upkeep_put_off", partitions=len(listed.failures), error=error)
        return listed

    def _former_lanes(self, own: Iterable[Assignment]) -> list[LaneId]:
        """Lanes of topics that were deleted, and made again by the names of these."""
        current = {lane.source: lane.topic_id for assignment in own for lane in self._lanes_of(assignment)}
        return [
            lane
            for lane in self.view.lanes
            if lane.source in current and lane.topic_id != current[lane.source]
        ]

    def describe(self) -> dict[str, Any]:
        """For `status`."""
        return {
            "problem": self.problem,
            "lanes": len(self.view.lanes),
            "pages": sum(map(len, self.view.lanes.values())),
            "pending_pages": self.recorder.pending_pages,
            "pages_given_up": self.pages_given_up,
        }


def _is_absence(error: BrokerError) -> bool:
    return isinstance(error, ProtocolError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
