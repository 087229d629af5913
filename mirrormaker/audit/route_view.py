"""What an audit of a route goes by, asked of both clusters: offsets, settings of topics, the ledger, notes.

How far the route has come is asked for first, then what topics the destination has and where they end, then
the source's ends: what the route says it has copied is there by then, and whatever the destination had is in
what is known of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, earliest_offsets, list_offsets
from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.entries import Repeaters
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.kept_copies import KeptCopies, kept_copies
from mirrormaker.audit.lane_runs import OFFSET_MAX, Pass
from mirrormaker.audit.notes import Truncation, lost_ranges, noted_ranges, truncations
from mirrormaker.audit.ranges import Range, joined, outside, total
from mirrormaker.audit.returned import read_returned
from mirrormaker.audit.route_lanes import (
    lay_lanes,
    read_lanes,
    severed_from,
    taken_topics,
    ways_of_topics,
    with_beside,
    with_former,
)
from mirrormaker.audit.standing_cuts import StandingCut, made_anew, standing_cuts, standing_doubts
from mirrormaker.audit.stored_positions import read_positions
from mirrormaker.audit.time_offsets import offsets_of_window
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.flow.ways import LaneMap
from mirrormaker.ledger.reading import find_ledger
from mirrormaker.ledger.view import LedgerView
from mirrormaker.plan.topics import select_topics
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.topology.model import ClusterSpec, Delivery, Isolation, RecordErrorPolicy, RouteSpec, Start
from mirrormaker.topology.naming import compile_naming

READ_TIMEOUT_MS = 30_000
_POLICY, _TIMES = "cleanup.policy", "message.timestamp.type"
_CODEC, _AS_SENT = "compression.type", "producer"


class Explained(NamedTuple):
    """Source offsets that no page deals with."""

    outcomes: Mapping[Outcome, int]
    """How many are noted, and how many came from the destination."""
    rest: Sequence[Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteView:
    """See the module. Offsets are those of the time that is audited."""

    route: RouteSpec
    source: Cluster
    destination: Cluster
    partitions: tuple[TopicPartition, ...]
    """Of the source, by name and number, that are judged."""
    lanes: Mapping[TopicPartition, LaneMap]
    """Where each leads, and each of those whose records stand beside theirs."""
    windows: Mapping[TopicPartition, Range]
    """Source offsets to be judged."""
    source_starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    """Of the source."""
    positions: Mapping[TopicPartition, int]
    """Where the route goes on; nothing of a partition that it has not begun."""
    to_windows: Mapping[TopicPartition, Range]
    """The same time at the destination."""
    to_starts: Mapping[TopicPartition, int]
    to_ends: Mapping[TopicPartition, int]
    """Up to where readers of committed records got before the ledger was read, which so knows of all that
    stands before.
    """
    to_reached: Mapping[TopicPartition, int]
    """The high watermark after that: what the ledger knows is there stands before, be it behind the first
    record of an open transaction.
    """
    passes: Mapping[tuple[TopicPartition, TopicPartition], list[Pass]]
    """What the ledger knows of each lane, by source and destination; nothing of those that it does not."""
    indexes: Mapping[TopicPartition, DestinationIndex]
    """By partition of the destination."""
    letter_topics: frozenset[str] = frozenset()
    """Topics of the destination that take dead letters of the route, and nothing else of it."""
    severed: Mapping[tuple[TopicPartition, TopicPartition], list[Pass]] = field(default_factory=dict)
    """As `passes`, of what was copied from logs that the source has no more."""
    truncations: Mapping[TopicPartition, list[Truncation]] = field(default_factory=dict)
    doubts: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Why nobody can tell which copies the source has lost, while the partition stands for that."""
    made_anew: frozenset[TopicPartition] = frozenset()
    """Those that stand for that, so that nothing of them is copied yet."""
    notes: Mapping[TopicPartition, list[Range]] = field(default_factory=dict)
    lost: Mapping[TopicPartition, list[Range]] = field(default_factory=dict)
    """What the route may have lost while it delivered at most once."""
    returned: Mapping[TopicPartition, list[Range]] = field(default_factory=dict)
    """Source offsets of what came there from the destination."""
    carried_ids: frozenset[int] = frozenset()
    repeaters: Repeaters = field(default_factory=Repeaters)
    compacted_sources: frozenset[str] = frozenset()
    compacted_destinations: frozenset[str] = frozenset()
    timed_destinations: frozenset[str] = frozenset()
    """Topics that give records times of their own."""
    rewritten_destinations: frozenset[str] = frozenset()
    """Topics that may store batches in another codec than they are sent in."""
    untold_sources: frozenset[str] = frozenset()
    """Topics whose settings the source does not tell: they are taken for ones with times of their producers,
    and without compaction.
    """
    untold_destinations: frozenset[str] = frozenset()

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody but the route writes to its topics, but to those of dead letters alone."""
        return is_exclusive(self.route)

    def is_exclusive_at(self, to: TopicPartition) -> bool:
        """Whether nobody but the route writes there; among letters consumers may have their own."""
        return self.is_exclusive and to.topic not in self.letter_topics

    @property
    def letters(self) -> str | None:
        """The name of the route, which its dead letters tell; None: it makes none."""
        return self.route.name if self.route.on.record_error is RecordErrorPolicy.PARK else None

    def data_lanes(self, source: TopicPartition) -> list[tuple[int, TopicPartition]]:
        """The lanes that records take, dead letters among them, by their number; not those for notes."""
        lane_map = self.lanes[source]
        numbers = {number for lanes in lane_map.targets.values() for number in lanes}
        parked = set[int]() if lane_map.parked_lane is None else {lane_map.parked_lane}
        return [(number, lane_map.destinations[number]) for number in sorted(numbers | parked)]

    def own_lanes(self, source: TopicPartition) -> list[tuple[int, TopicPartition]]:
        """The same without those to topics of dead letters alone."""
        return [each for each in self.data_lanes(source) if each[1].topic not in self.letter_topics]

    def lanes_to(self, to: TopicPartition) -> list[tuple[TopicPartition, int, list[Pass]]]:
        """The lanes of the route that lead to a partition of the destination and are in the ledger: source,
        number and passes of each.
        """
        return [
            (source, number, passes)
            for (source, there), passes in self.passes.items()
            if there == to
            for number, destination in self.data_lanes(source)
            if destination == to
        ]

    def kept_copies(self, source: TopicPartition) -> list[KeptCopies]:
        """Of what the source lost of a partition after it was copied, those that the destination has."""
        found: list[KeptCopies] = []
        for _, to in self.data_lanes(source):
            severed = self.severed.get((source, to))
            if not severed or to not in self.to_ends:
                continue
            passes = [each for _, _, known in self.lanes_to(to) for each in known]
            kept = Range(self.to_starts[to], self.to_reached[to]).within(self.to_windows[to])
            found += kept_copies(source, to, severed, passes, kept, self.truncations.get(source, ()))
        return found

    def is_all_severed(self, source: TopicPartition) -> bool:
        """Whether the source has nothing more of what was copied of a partition, and goes on from there."""
        lanes = [(source, to) for _, to in self.data_lanes(source)]
        return any(self.severed.get(lane) for lane in lanes) and not any(
            lane in self.passes for lane in lanes
        )

    def is_to_begin(self, source: TopicPartition) -> bool:
        """Whether all of a partition is still to be copied: the route stands at its oldest record, or nowhere
        and will begin there, and nobody ever wrote where its records go.
        """
        position, lanes = self.positions.get(source), self.own_lanes(source)
        earliest = self.route.start is Start.EARLIEST
        is_at_start = earliest if position is None else position <= self.source_starts[source]
        is_known = any((source, to) in self.passes for _, to in self.data_lanes(source))
        return is_at_start and not is_known and not any(self.to_reached.get(to) for _, to in lanes)

    def untold_topics(self, source: TopicPartition) -> set[str]:
        """Topics that a partition is judged by, and whose settings are not told, each with its cluster."""
        route = self.route
        told = {f"{route.source} {source.topic}"} if source.topic in self.untold_sources else set[str]()
        there = {to.topic for _, to in self.data_lanes(source)} & self.untold_destinations
        return told | {f"{route.destination} {topic}" for topic in there}

    def why_unplaced(self, source: TopicPartition) -> str | None:
        """Why nothing can be told of a partition without the ledger of it; None: reading both sides tells."""
        lanes = len(self.own_lanes(source))
        if lanes == 1:
            return None
        return (
            f"its records go to {lanes} partitions, among those of others, and only the ledger, which has"
            " nothing of it, says which went where"
        )

    def may_be_lost(self, source: TopicPartition) -> Sequence[Range]:
        """Source offsets of which at most once may have lost some, or not told the ledger."""
        if self.route.delivery is Delivery.AT_MOST_ONCE:
            return [Range(0, OFFSET_MAX)]
        return self.lost.get(source, ())

    def begun_at(self, source: TopicPartition, passes: Sequence[Pass]) -> int:
        """The source offset that the route began at, of which these passes tell; earlier ones were not asked
        for. At most once, what is lost of the beginning may never have been written down.
        """
        firsts = [each.source.first for each in passes]
        first = min([*firsts, *(each.first for each in self.lost.get(source, ()))])
        if self.route.delivery is Delivery.AT_MOST_ONCE and self.route.start is Start.EARLIEST:
            return min(first, self.windows[source].first)
        return first

    def notes_of(self, source: TopicPartition) -> list[Range]:
        """What is noted of a partition, as far as the route has come: it may have been sent back since."""
        known = [at for at in (self.copied_to(source), self.positions.get(source)) if at is not None]
        notes = self.notes.get(source, [])
        return joined(each.within(Range(0, max(known))) for each in notes) if known else notes

    def explain(self, source: TopicPartition, parts: Iterable[Range]) -> Explained:
        """What is known of source offsets that no page deals with."""
        whole, notes = [*parts], self.notes_of(source)
        unnoted = [part for each in whole for part in outside(notes, each)]
        rest = [part for each in unnoted for part in outside(self.returned.get(source, ()), each)]
        noted, returned = total(whole) - total(unnoted), total(unnoted) - total(rest)
        return Explained({Outcome.NOTED: noted, Outcome.RETURNED: returned}, rest)

    def copied_to(self, source: TopicPartition) -> int | None:
        """The source offset that the route has certainly come to; None: not known."""
        known = [
            each.source.next
            for _, to in self.data_lanes(source)
            for each in self.passes.get((source, to), ())
        ]
        position = self.positions.get(source)
        is_certain = self.route.delivery is not Delivery.AT_MOST_ONCE or source in self.made_anew
        if is_certain and position is not None:
            known.append(position)
        return max(known, default=None)


async def view_route(
    route: RouteSpec,
    spec: ClusterSpec,
    source: Cluster,
    destination: Cluster,
    window: TimeWindow,
    topics: Collection[str] = (),
    *,
    ledger: LedgerView | None = None,
) -> RouteView:
    """Look at a route whose source `spec` describes; clusters come started. `topics`: of the source; all when
    there are none. `ledger`: what it says, where that is at hand. Raises BrokerError.
    """
    metadata = await source.refresh()
    selected = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
    ways = ways_of_topics(route, selected)
    asked = sorted(name for name in selected if not topics or name in topics)
    wanted = with_beside(asked, ways) if topics else asked
    partitions = metadata.topic_partitions(wanted)
    positions = await read_positions(route, spec, source, destination, partitions)
    lanes, existing = lay_lanes(ways, partitions, await destination.refresh())
    to_ends = await _ends(destination, existing, read_committed=True)
    to_starts = await earliest_offsets(destination, existing)
    to_windows = await offsets_of_window(destination, existing, window)
    view = await find_ledger(destination) if ledger is None else ledger
    control = await read_kept(destination, CONTROL_TOPIC)
    cuts = standing_cuts(control, route.name)
    anew = {each: at for each, at in made_anew(control, route.name).items() if each in lanes}
    passes, severed, indexes = read_lanes(view, route, source, lanes, existing, severed_from(cuts, anew))
    lanes = with_former(lanes, passes, to_ends.keys())
    to_reached = await _ends(destination, existing, read_committed=False)
    ends = await _ends(source, partitions, read_committed=True)
    windows = await offsets_of_window(source, partitions, window)
    found = RouteView(
        route=route,
        source=source,
        destination=destination,
        partitions=tuple(metadata.topic_partitions(asked)),
        lanes=lanes,
        windows={each: windows[each].within(Range(0, ends[each])) for each in partitions},
        source_starts=await earliest_offsets(source, partitions),
        ends=ends,
        positions={each: min(at, cuts[each].at) if each in cuts else at for each, at in positions.items()}
        | anew,
        to_windows=to_windows,
        to_starts=to_starts,
        to_ends=to_ends,
        to_reached=to_reached,
        passes=passes,
        indexes=indexes,
        letter_topics=frozenset(each.parked for each in ways.values() if each.parked) - taken_topics(ways),
        severed=severed,
        doubts=standing_doubts(control, route.name),
        made_anew=frozenset(anew),
        returned=await _returned(route, source, destination, lanes),
        carried_ids=await _carried_ids(source) if route.provenance else frozenset(),
        repeaters=Repeaters(
            frozenset(view.producers(source.cluster_id)),
            route.delivery is Delivery.AT_LEAST_ONCE and is_exclusive(route),
        ),
    )
    found = await _with_settings(found, wanted, {to.topic for to in existing})
    return await _with_notes(found, cuts)


async def _with_settings(view: RouteView, here: Collection[str], there: Collection[str]) -> RouteView:
    """The same, and how these topics of both clusters are set."""
    source, kept = await _settings(view.source, here), await _settings(view.destination, there)
    return replace(
        view,
        compacted_sources=_topics_with(source, _POLICY, "compact"),
        compacted_destinations=_topics_with(kept, _POLICY, "compact"),
        timed_destinations=_topics_with(kept, _TIMES, "LogAppendTime"),
        rewritten_destinations=frozenset(there) - _topics_with(kept, _CODEC, _AS_SENT),
        untold_sources=frozenset(here) - source.keys(),
        untold_destinations=frozenset(there) - kept.keys(),
    )


async def _with_notes(view: RouteView, cuts: Mapping[TopicPartition, StandingCut]) -> RouteView:
    """The same, and what is noted at the destination of records that are not there; `cuts`: what the source
    lost, where partitions stand for that.
    """
    noted, route = await read_kept(view.destination, SKIPPED_TOPIC), view.route.name
    return replace(
        view,
        truncations=_with_standing(truncations(noted, route), cuts),
        notes=noted_ranges(noted, route),
        lost=lost_ranges(noted, route),
    )


def is_exclusive(route: RouteSpec) -> bool:
    """Whether nobody but the route writes to its topics."""
    return not route.provenance and not route.topics.merge


def committed_only(route: RouteSpec) -> bool:
    """Whether the route takes records of transactions only once these are committed."""
    return route.isolation is Isolation.READ_COMMITTED


async def _ends(
    cluster: Cluster, partitions: Collection[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    return {partition: at.offset for partition, at in found.items()}


def _with_standing(
    noted: Mapping[TopicPartition, list[Truncation]], cuts: Mapping[TopicPartition, StandingCut]
) -> dict[TopicPartition, list[Truncation]]:
    """What is noted, and what partitions stand for."""
    standing = {source: [*noted.get(source, ()), cut.truncation] for source, cut in cuts.items()}
    return {**noted, **standing}


async def _returned(
    route: RouteSpec, source: Cluster, destination: Cluster, lanes: Mapping[TopicPartition, LaneMap]
) -> Mapping[TopicPartition, list[Range]]:
    if not route.provenance:
        return {}
    has_markers = route.delivery is Delivery.EXACTLY_ONCE
    return await read_returned(source, destination, lanes, has_markers=has_markers)


async def _carried_ids(source: Cluster) -> frozenset[int]:
    """Producer ids of mirrors that write to the source."""
    entries = await read_kept(source, ORIGINS_TOPIC)
    ids = (key.get("producer") for key, _ in entries)
    return frozenset(each for each in ids if isinstance(each, int))


async def read_kept(cluster: Cluster, name: str) -> list[tuple[Mapping[str, object], Mapping[str, object]]]:
    """Keys and values of a compacted topic; none where it is not there. Raises BrokerError."""
    if name not in cluster.topics:
        return []  # looking makes no topic
    async with KeptTopic(cluster, name, timeout_ms=READ_TIMEOUT_MS) as topic:
        await topic.read_to_end()
        return list(topic.entries())


async def _settings(cluster: Cluster, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """What topics are set to, of what matters here; without those that the cluster does not tell of."""
    if not topics:
        return {}
    try:
        told = await Admin(cluster).describe_topics_configs(topics, (_POLICY, _TIMES, _CODEC))
    except BrokerError:
        return {}
    return {
        topic: {name: entry.value or "" for name, entry in configs.items()}
        for topic, configs in told.items()
        if not isinstance(configs, BrokerError)
    }


def _topics_with(settings: Mapping[str, Mapping[str, str]], name: str, word: str) -> frozenset[str]:
    """Topics that have the word in a setting."""
    return frozenset(topic for topic, values in settings.items() if word in values.get(name, ""))
