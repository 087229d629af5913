"""Whether all that the sources of a topic had of a time has arrived there: for those who compute on it.

    found = await read_completeness(topology, "aggregate", ["jfk.flights"], TimeWindow(from_ms=0, to_ms=1))
    if not found.is_complete:
        print(*found.missing_lines(), sep="\\n")

A source has had a time when that is over and it has a record that is younger, or simply nothing more; so
records that are older than such a one, and come after it, are seen by `lateness_ms` alone. All of its offsets
up to there must be dealt with by the route: written in the ledger, or, where a route has none, passed by its
position; or left out for good, as what a skip or a seek has passed over, and what was there before a route
that does not start at the earliest. Sources of sources count too, along every way that leads to the topic.

What has arrived must be there for readers of committed records, too: a transaction that is open at the
destination, of whatever producer, keeps from them all that came after its first record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker.audit.feeders import fed_topics, feeding_topic_by_name, feeding_topics, may_feed_some
from mirrormaker.audit.notes import noted_ranges
from mirrormaker.audit.ranges import Range, covered_by, joined, outside, total
from mirrormaker.audit.route_view import read_kept
from mirrormaker.audit.stable_ends import LogEnd, log_ends, unstable_ranges
from mirrormaker.audit.stored_positions import read_positions
from mirrormaker.audit.time_offsets import offsets_of_window
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.reading import find_ledger, lanes_now
from mirrormaker.ledger.view import LedgerView
from mirrormaker.topology.further_topics import may_write
from mirrormaker.topology.model import ClusterName, Delivery, RouteName, RouteSpec, Start, Topology
from mirrormaker.topology.naming import TopicNaming, compile_naming

_SHOWN_RANGES = 3


class Goal(NamedTuple):
    """A topic that is to have everything."""

    cluster: ClusterName
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCompleteness:
    """One partition of a source."""

    source: TopicPartition
    window: Range
    """What it has of the time, offsets."""
    missing: tuple[Range, ...]
    """Of that, what the route has not dealt with."""
    held_back: tuple[Range, ...] = ()
    """Of that, what is at the destination behind a transaction that is open there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCompleteness:
    """What one route had to bring of one topic of its source."""

    route: RouteName
    source: ClusterName
    topic: str
    destination: ClusterName
    to: str
    partitions: tuple[PartitionCompleteness, ...] = ()
    problem: str | None = None
    """Why it cannot be told."""

    @property
    def missing_offsets(self) -> int:
        """Offsets of the time that have not arrived."""
        return sum(total(each.missing) for each in self.partitions)

    @property
    def is_complete(self) -> bool:
        """Whether all that the source has of the time is there."""
        is_readable = not any(each.held_back for each in self.partitions)
        return self.problem is None and not self.missing_offsets and is_readable

    def missing_lines(self) -> Iterator[str]:
        """What is missing, for people; a line for each partition."""
        way = f"{self.source}: {self.topic}"
        if self.problem is not None:
            yield f"{way}: {self.problem}"
        for each in self.partitions:
            held_back = f"cannot be read yet: a transaction is open in {self.destination}: {self.to}"
            for ranges, what in ((each.missing, "have not arrived"), (each.held_back, held_back)):
                if ranges:
                    told = ", ".join(map(str, ranges[:_SHOWN_RANGES]))
                    more = "" if len(ranges) <= _SHOWN_RANGES else ", and more"
                    yield f"{self.source}: {each.source}: {total(ranges)} offsets {what} ({told}{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completeness:
    """All sources of the topics that were asked about."""

    window: TimeWindow
    is_over: bool
    """Whether the time has passed: nothing is complete before."""
    sources: tuple[SourceCompleteness, ...]

    @property
    def is_complete(self) -> bool:
        """Whether everything is there."""
        return self.is_over and all(source.is_complete for source in self.sources)

    def missing_lines(self) -> list[str]:
        """What is missing, for people."""
        over = [] if self.is_over else [f"the time is not over: {self.window}"]
        return over + [line for source in self.sources for line in source.missing_lines()]


async def read_completeness(
    topology: Topology,
    cluster: str,
    topics: Collection[str],
    window: TimeWindow,
    *,
    lateness_ms: int = 0,
    clock: Clock | None = None,
) -> Completeness:
    """How the topics of a cluster stand to what their sources have of the time. A cluster that cannot be
    asked is told in the `problem` of what it keeps from being known; a topic that no route feeds has no
    sources, and is complete.

    `lateness_ms`: how much younger records may come before ones of the time.

    Raises ConfigurationError when the topology has no such cluster.
    """
    if cluster not in topology.clusters:
        raise ConfigurationError(
            [f"there is no cluster {cluster!r}: there are {', '.join(topology.clusters)}"]
        )
    clock = clock or SystemClock()
    until = None if window.to_ms is None else window.to_ms + lateness_ms
    is_over = until is None or clock.now_ms() >= until
    span = TimeWindow(from_ms=window.from_ms, to_ms=until)
    sources: list[SourceCompleteness] = []
    goals = {Goal(ClusterName(cluster), topic) for topic in topics}
    seen: set[Goal] = set()
    while goals:
        seen |= goals
        found = [
            each
            for route in topology.routes
            for each in await _of_route(topology, route, goals, span, are_read=not sources)
        ]
        sources += found
        goals = {Goal(each.source, each.topic) for each in found} - seen
    return Completeness(window=window, is_over=is_over, sources=tuple(sources))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingTopics:
    """Topics that routes bring to a cluster; they need not be there yet."""

    known: frozenset[str]
    """By what the sources have now that can be asked."""
    problems: tuple[str, ...]
    """Of each source that cannot be asked, and may have more."""


async def coming_topics(topology: Topology, cluster: str, wanted: TopicNaming) -> ComingTopics:
    """Those that `wanted` selects."""
    known: set[str] = set()
    problems = []
    for route in topology.routes:
        if route.destination != cluster:
            continue
        try:
            async with open_cluster(topology.clusters[route.source]) as source:
                metadata = await source.refresh()
            known.update(filter(wanted.selects, fed_topics(route, metadata.topics.values())))
        except BrokerError as error:
            if may_feed_some(route, wanted):
                problems.append(f"{route.source}: which topics it has is not known: {error}")
    return ComingTopics(known=frozenset(known), problems=tuple(problems))


async def _of_route(
    topology: Topology, route: RouteSpec, goals: Collection[Goal], window: TimeWindow, *, are_read: bool
) -> list[SourceCompleteness]:
    """What the route brings of these. One that is not enabled brings what it has. `are_read`: whether these
    are what is computed on, and not read by a route.
    """
    wanted = sorted(goal.topic for goal in goals if goal.cluster == route.destination)
    if not wanted:
        return []
    try:
        async with (
            open_cluster(topology.clusters[route.source]) as source,
            open_cluster(topology.clusters[route.destination]) as destination,
        ):
            return await _compare(topology, route, source, destination, wanted, window, are_read=are_read)
    except BrokerError as error:
        naming = compile_naming(route.source, route.topics)
        return [
            _source(route, feeding_topic_by_name(route, to) or to, to, problem=str(error))
            for to in wanted
            if may_write(route, naming, to)
        ]


async def _compare(
    topology: Topology,
    route: RouteSpec,
    source: Cluster,
    destination: Cluster,
    wanted: Iterable[str],
    window: TimeWindow,
    *,
    are_read: bool,
) -> list[SourceCompleteness]:
    """Raises BrokerError."""
    metadata = await source.refresh()
    feeds = [(topic, to) for to in wanted for topic in feeding_topics(route, to, metadata.topics.values())]
    partitions = metadata.topic_partitions(sorted({topic for topic, _ in feeds}))
    needed = await offsets_of_window(source, partitions, window)
    spec = topology.clusters[route.source]
    positions = await read_positions(route, spec, source, destination, partitions)
    view = await find_ledger(destination)
    await destination.refresh()
    notes = noted_ranges(await read_kept(destination, SKIPPED_TOPIC), route.name)
    ends = await log_ends(destination, wanted) if are_read else {}
    lanes = {
        (each, to): _pages_of(route, view, source, each, to)
        for topic, to in feeds
        for each in partitions
        if each.topic == topic
    }
    unlisted = {to for (_, to), pages in lanes.items() if not pages}
    unstable = [at for at, end in ends.items() if not end.is_stable and at.topic in unlisted]
    arrivals = _Arrivals(
        route=route,
        lanes=lanes,
        needed=needed,
        positions=positions,
        notes=notes,
        ends=ends,
        of_window=await offsets_of_window(destination, unstable, window),
    )
    return [
        _source(
            route,
            topic,
            to,
            partitions=[arrivals.judge(each, to) for each in partitions if each.topic == topic],
        )
        for topic, to in feeds
    ]


def _pages_of(
    route: RouteSpec, view: LedgerView, source: Cluster, partition: TopicPartition, to: str
) -> dict[LaneId, Sequence[Page]]:
    """Of the lanes from a partition to a topic, those that the route has pages of."""
    lanes = lanes_now(view, source, partition, to)
    found = {lane: view.lanes[lane].of_route(route.name) for lane in lanes}
    return {lane: pages for lane, pages in found.items() if pages}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrivals:
    """What a route has brought of a time."""

    route: RouteSpec
    lanes: Mapping[tuple[TopicPartition, str], Mapping[LaneId, Sequence[Page]]]
    """By partition of the source and topic of the destination."""
    needed: Mapping[TopicPartition, Range]
    """What the source has of the time."""
    positions: Mapping[TopicPartition, int]
    notes: Mapping[TopicPartition, Sequence[Range]]
    ends: Mapping[TopicPartition, LogEnd]
    """Of the destination, where what is there is to be read."""
    of_window: Mapping[TopicPartition, Range]
    """What the destination has of the time, where open transactions may hold back what no page tells of."""

    def judge(self, partition: TopicPartition, to: str) -> PartitionCompleteness:
        """What a topic of the destination lacks of a partition."""
        return PartitionCompleteness(
            source=partition,
            window=self.needed[partition],
            missing=tuple(self._missing(partition, to)),
            held_back=tuple(self._held_back(partition, to)),
        )

    def _missing(self, partition: TopicPartition, to: str) -> list[Range]:
        lanes = self.lanes[partition, to].values()
        dealt_with = _since_they_began([_dealt_with(self.route, pages) for pages in lanes])
        position = self.positions.get(partition, 0)
        # at most once, a position goes before its records
        known = 0 if self.route.delivery is Delivery.AT_MOST_ONCE else position
        # a route that was moved back copies what a note says it had passed over
        left_out = [each.within(Range(0, position)) for each in self.notes.get(partition, ())]
        lacking = (
            outside(joined([*each, *left_out]), self.needed[partition])
            for each in dealt_with or [[Range(0, known)]]
        )
        return joined(each for ranges in lacking for each in ranges)

    def _held_back(self, partition: TopicPartition, to: str) -> list[Range]:
        lanes = self.lanes[partition, to]
        found = [
            held
            for lane, pages in lanes.items()
            if lane.destination in self.ends
            for held in unstable_ranges(pages, self.ends[lane.destination])
        ]
        spans = ((at, span) for at, span in self.of_window.items() if at.topic == to)
        if not lanes and any(self.ends[at].stable < span.next for at, span in spans):
            found = [Range(0, self.positions.get(partition, 0))]  # it may be anywhere
        return joined(each.within(self.needed[partition]) for each in found)


def _since_they_began(dealt_with: Sequence[Sequence[Range]]) -> list[list[Range]]:
    """What each lane has dealt with. Before the first of it, where the topic had fewer partitions, that was
    the others' to do.
    """
    others = joined(part for ranges in dealt_with for part in ranges)
    return [
        joined([*ranges, *(part.within(Range(0, ranges[0].first)) for part in others)])
        for ranges in dealt_with
        if ranges
    ]


def _dealt_with(route: RouteSpec, pages: Iterable[Page]) -> list[Range]:
    covered = covered_by(pages)
    if covered and route.start is not Start.EARLIEST:
        return joined([Range(0, covered[0].first), *covered])
    return covered


def _source(
    route: RouteSpec,
    topic: str,
    to: str,
    *,
    partitions: Iterable[PartitionCompleteness] = (),
    problem: str | None = None,
) -> SourceCompleteness:
    return SourceCompleteness(
        route=route.name,
        source=route.source,
        topic=topic,
        destination=route.destination,
        to=to,
        partitions=tuple(partitions),
        problem=problem,
    )
