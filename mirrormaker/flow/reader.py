"""The source side of a route: fetch loops for every source broker that leads a partition at hand.

A near broker has one loop; a far one has several, each on a connection of its own and for other
partitions, so that answers of one arrive while another waits for a round trip. Where it leads only few,
several loops read the busiest of them, ahead of each other (`read_ahead`, `spare_loops`). A loop sends
its next fetch as soon as the answer before has been cut up, before any of that answer is produced: the
broker works while the mirror does. Where little comes of many partitions it waits for some more (see
`fetch_pace`). Owned by the event loop of the route's copier; all tasks live in its task group.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import AuthenticationError, BrokerError, ConfigurationError, RequestTimedOutError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.exchange import FetchPlan, Remainder
from mirrormaker.flow.fetch_answers import FetchAnswers, Taken, is_answered
from mirrormaker.flow.fetcher import Answered, Fetcher
from mirrormaker.flow.lag import BeginHistory, unseen_history
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.read_ahead import ReadAhead
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.sizing import Fetching
from mirrormaker.flow.source_ranges import FindEpochs, SourceRanges
from mirrormaker.flow.spare_loops import SpareLoops
from mirrormaker.flow.trouble import Trouble

NOTHING_TO_FETCH_WAIT_MS = 100
REFRESH_SPACING_MS = 100

_log = logger("reader")


class SourceReader:
    """Fetches for one copier. `spread` whenever partitions or leaders have changed."""

    def __init__(
        self,
        cluster: Cluster,
        machine: FlowMachine,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        on_progress: Callable[[], None],
        *,
        on_trouble: Callable[[Trouble], None],
        find_epochs: FindEpochs,
        fetching: Fetching | None = None,
        filter_text: Callable[[Iterable[str]], str],
        read_committed: bool = True,
        begin_history: BeginHistory = unseen_history,
    ) -> None:
        """`on_trouble` is told why a partition stands; it is fetched again after `FlowMachine.go_on`.
        `filter_text` tells what nodes may leave out that filter themselves, by topics.
        """
        self.room = Signal()
        """Set when the destination has acknowledged something."""
        self._cluster = cluster
        self._machine = machine
        self._tasks = tasks
        self._clock = clock
        self._on_progress = on_progress
        self._fetching = fetching or Fetching()
        self._round_trip_ms = 0.0
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        """By broker and number of the loop."""
        self._filter_text = filter_text
        self._read_committed = read_committed
        self._ahead: dict[TopicPartition, ReadAhead] = {}
        """Of partitions that several loops read."""
        self._spare_loops = SpareLoops(machine.partitions)
        self._stale = Signal()
        self.ranges = SourceRanges(
            cluster,
            machine,
            tasks,
            clock,
            on_look=self._forget_ahead,
            on_trouble=on_trouble,
            on_progress=on_progress,
            find_epochs=find_epochs,
        )
        self.answers = FetchAnswers(
            cluster,
            machine,
            clock,
            self.ranges,
            on_trouble=on_trouble,
            on_stale=self._stale.set,
            read_committed=read_committed,
            begin_history=begin_history,
        )

    @property
    def nodes(self) -> set[int]:
        """Brokers that are fetched from."""
        return {fetcher.node_id for fetcher in self._active}

    @property
    def lanes(self) -> int:
        """Fetches of one broker at a time."""
        return self._fetching.lanes

    @property
    def _active(self) -> list[Fetcher]:
        return [fetcher for fetcher in self._fetchers.values() if fetcher.sources]

    def configure(self, fetching: Fetching, round_trip_ms: float) -> None:
        """Fetch so from now on, from brokers that are so far away."""
        self._round_trip_ms = round_trip_ms
        has_other_lanes = fetching.lanes != self._fetching.lanes
        self._fetching = fetching
        for fetcher in self._fetchers.values():
            fetcher.answer.bytes = min(fetcher.answer.bytes, fetching.answer_bytes_max)
        if has_other_lanes or self._spare_loops.move():
            self.spread()

    def spread(self) -> None:
        """Hand the machine's partitions to the loops of their leaders, and start loops that are missing."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        metadata, now_ms = self._cluster.metadata, self._clock.monotonic_ms()
        for source in self._machine.partitions:
            node_id = self.answers.read_from.source(source, metadata, now_ms)
            if node_id is None:
                self._stale.set()
            else:
                by_leader[node_id].append(source)
        self._share_out(by_leader)
        self.ranges.find_recreated()
        self.answers.forget_released()

    def _share_out(self, by_leader: Mapping[int, list[TopicPartition]]) -> None:
        """Give every loop its partitions; the same as before, as far as the partitions are the same."""
        lanes = self._fetching.lanes
        few = {node_id: sources for node_id, sources in by_leader.items() if len(sources) < lanes}
        self._spare_loops.spread(few)
        parts = {
            (node_id, lane): part
            for node_id, sources in by_leader.items()
            for lane in range(lanes if len(sources) >= lanes else len(sources) + lanes - 1)
            if (part := self._part_of(node_id, sorted(sources), lane))
        }
        readers = Counter(part[0] for part in parts.values() if len(part) == 1)
        self._ahead = {
            source: self._ahead.get(source) or ReadAhead() for source, count in readers.items() if count > 1
        }
        for key, fetcher in self._fetchers.items():
            fetcher.sources = parts.get(key, [])
        for key, part in parts.items():
            fetcher = self._fetchers.get(key) or self._make_fetcher(*key)
            fetcher.sources = part
            if not fetcher.is_running:
                fetcher.is_running = True
                self._tasks.create_task(self._fetch_from(fetcher), name=f"fetch from {key[0]}")

    def _part_of(self, node_id: int, sources: list[TopicPartition], lane: int) -> list[TopicPartition]:
        """Those of a broker's partitions that one of its loops has."""
        if lane < len(sources):
            return sources[lane :: self._fetching.lanes]
        source = self._spare_loops.read[node_id]
        return [] if self._filter_text([source.topic]) else [source]  # filtered answers have holes

    def _make_fetcher(self, node_id: int, lane: int) -> Fetcher:
        fetcher = self._fetchers[node_id, lane] = Fetcher(
            self._cluster,
            self._clock,
            node_id,
            lane,
            self._fetching.answer_bytes,
            filter_text=self._filter_text,
            read_committed=self._read_committed,
        )
        return fetcher

    async def follow_leaders(self) -> None:
        """Look the source's leaders up whenever a fetch says that they may have moved, until cancelled."""
        failures = 0
        while True:
            await self._stale.wait()
            topics = {source.topic for source in self._machine.partitions}
            try:
                if topics:
                    await self._cluster.refresh(topics)
            except (AuthenticationError, ConfigurationError):
                raise  # the route fails, says why, and is tried again after a while
            except BrokerError as error:
                _log.info("source_metadata_not_refreshed", error=str(error))
            led = all(self._cluster.leader(source) is not None for source in self._machine.partitions)
            failures = 0 if led else failures + 1
            self.spread()
            wait_ms = self._cluster.backoff.delay_ms(failures, self._cluster.random) if failures else 0
            await asyncio.sleep(max(wait_ms, REFRESH_SPACING_MS) / 1000)

    async def _fetch_from(self, fetcher: Fetcher) -> None:
        """One loop; ends when its broker leads nothing for it any more."""
        try:
            failures = 0
            while sources := fetcher.sources:
                plan = self._machine.plan_fetch(
                    sources,
                    len(self._active),
                    self._clock.monotonic_ms(),
                    fetcher.answer.bytes,
                    busy=fetcher.served,
                )
                if not plan.positions:
                    await self.room.wait(timeout_ms=NOTHING_TO_FETCH_WAIT_MS)
                    continue
                try:
                    await self._fetch(fetcher, plan)
                    failures = 0
                except (AuthenticationError, ConfigurationError):
                    raise
                except BrokerError as error:
                    failures += 1
                    if isinstance(error, RequestTimedOutError):
                        fetcher.answer.timed_out()
                    for source in sources:
                        self.answers.read_from.recall(source)
                    _log.info("fetch_failed", node=fetcher.node_id, failures=failures, error=str(error))
                    self._stale.set()
                    await asyncio.sleep(self._cluster.backoff.delay_ms(failures, self._cluster.random) / 1000)
        finally:
            fetcher.is_running = False

    async def _fetch(self, fetcher: Fetcher, plan: FetchPlan) -> None:
        ahead = self._ahead.get(plan.positions[0].topic_partition)
        if ahead is not None:
            await self._fetch_ahead(fetcher, plan, ahead)
            return
        answered = await fetcher.ask(plan)
        taken = self._take(answered, plan)
        fetcher.served = taken.served
        self._note_size(fetcher, plan, taken.size, answered.elapsed_ms)
        fetcher.serve_last(taken.served, is_contended=plan.is_contended)
        await self._take_on(taken.remainder)
        if taken.size * 2 < plan.answer_bytes:
            await fetcher.pause(answered, len(taken.served))

    async def _fetch_ahead(self, fetcher: Fetcher, plan: FetchPlan, ahead: ReadAhead) -> None:
        """One of several fetches of a partition that are under way together."""
        (wanted,) = plan.positions
        source = wanted.topic_partition
        source_end = self._machine.partitions[source].source_end
        stretch = ahead.begin(wanted.offset, wanted.max_bytes, source_end)
        if stretch is None:
            await self.room.wait(timeout_ms=NOTHING_TO_FETCH_WAIT_MS)
            return
        epoch = -1 if stretch.is_ahead else wanted.leader_epoch
        wanted = replace(wanted, offset=stretch.start, max_bytes=stretch.size, leader_epoch=epoch)
        plan = replace(plan, positions=[wanted])
        try:
            answered = await fetcher.ask(plan, is_alone=False)
        except BrokerError:
            ahead.failed(stretch)
            raise
        data = dict(answered.parts).get(source)
        if data is None or not is_answered(data):
            ahead.failed(stretch)
            if not stretch.is_ahead:
                self._take(answered, plan)
            return
        answer = self.answers.read(source, stretch.start, data, answered)
        fetcher.served = {source} if answer.records else set()
        self._note_size(fetcher, plan, len(answer.records), answered.elapsed_ms)
        ahead.arrived(stretch, answer)
        await self._hand_over(source, ahead)

    async def _hand_over(self, source: TopicPartition, ahead: ReadAhead) -> None:
        """Have the machine take in what goes on where it is."""
        while self._ahead.get(source) is ahead:
            partition = self._machine.partitions.get(source)
            answer = ahead.take(partition.position, partition.leader_epoch) if partition is not None else None
            if answer is None:
                return
            now_ms = self._clock.monotonic_ms()
            remainder = self._machine.fetched([answer], len(answer.records), now_ms)
            self._on_progress()
            self.room.set()
            ahead.is_taken_on = True
            try:
                await self._take_on(remainder)
            finally:
                ahead.is_taken_on = False

    def _note_size(self, fetcher: Fetcher, plan: FetchPlan, size: int, elapsed_ms: int) -> None:
        fetcher.answer.took(
            plan.answer_bytes,
            size,
            elapsed_ms,
            self._round_trip_ms,
            fetchers=len(self._active),
            largest=self._fetching.answer_bytes_max,
        )

    async def _take_on(self, remainder: Remainder | None) -> None:
        """Take in what is left of an answer, a turn of the event loop at a time, as there is room."""
        while remainder is not None:
            await (self.room.wait(NOTHING_TO_FETCH_WAIT_MS) if self._machine.is_full else asyncio.sleep(0))
            if not self._machine.is_full:
                remainder = self._machine.take_on(remainder, self._clock.monotonic_ms())
                self._on_progress()

    def _take(self, answered: Answered, plan: FetchPlan) -> Taken:
        """Hand an answer to the machine."""
        taken = self.answers.take(answered, plan)
        if taken.is_moved:
            self.spread()
        if taken.served:
            self._on_progress()
        return taken

    def accept_topic(self, source: TopicPartition) -> None:
        """The topic that has the name now is to be copied."""
        self._forget_ahead(source)
        self.ranges.accept_topic(source)

    def _forget_ahead(self, source: TopicPartition) -> None:
        if (ahead := self._ahead.get(source)) is not None:
            ahead.clear()
