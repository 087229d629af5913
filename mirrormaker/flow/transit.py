"""What a route does to the batches of its partitions: which of them pass as they are, and what becomes of the
others. Pure, but for what is loaded from outside when the steps of a topic are compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from broker.records.batch import Codec
from broker.records.record import Record
from mirrormaker.flow.batch_limits import BatchLimits
from mirrormaker.flow.chunk import DeepReason, Frame
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.exchange import FetchedPartition
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC, KEY_PREFIX
from mirrormaker.flow.heartbeats.passage import HeartbeatPassage
from mirrormaker.flow.intake import BatchLimit, Intake, IntakeConfig, Steps
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.ways import LaneMap, Ways, choose_lane, ways_of
from mirrormaker.steps.conditions import any_filter_text, filter_text
from mirrormaker.steps.record import RecordAtWork, RecordError
from mirrormaker.steps.topic_steps import TopicSteps, compile_steps
from mirrormaker.topology.model import (
    Compression,
    CopyMode,
    FilterAction,
    FilterSpec,
    KeyPrefix,
    PartitionPolicy,
    RouteSpec,
)
from mirrormaker.topology.naming import compile_naming

CODECS = {
    Compression.PRESERVE: None,
    Compression.NONE: Codec.NONE,
    Compression.GZIP: Codec.GZIP,
    Compression.SNAPPY: Codec.SNAPPY,
    Compression.LZ4: Codec.LZ4,
    Compression.ZSTD: Codec.ZSTD,
}
_TEXT_OF_HEARTBEATS = filter_text(
    [FilterSpec(action=FilterAction.KEEP, condition=KeyPrefix(prefix=KEY_PREFIX))]
)
"""What nodes that filter other topics of a fetch let pass for heartbeats."""


@dataclass(frozen=True, slots=True)
class _TopicWork:
    """What is done to one source topic."""

    steps: Steps | TopicSteps
    """Ready ones are those of heartbeats."""
    ways: Ways
    deep_reason: DeepReason | None
    """Why all its batches go deep; None: not all of them do."""
    text_for_nodes: str


class RouteTransit:
    """The `Transit` of one route."""

    def __init__(
        self, route: RouteSpec, limits: BatchLimits, heartbeats: HeartbeatPassage | None = None
    ) -> None:
        self._route = route
        self._heartbeats = heartbeats
        self._limits = limits
        self._naming = compile_naming(route.source, route.topics)
        self._topics: dict[str, _TopicWork] = {}
        self._partitions: dict[Partition, _PartitionWork] = {}

    def ways(self, topic: str) -> Ways:
        """Of a source topic. Raises ConfigurationError when its steps cannot be compiled."""
        return self._work(topic).ways

    def filter_text(self, topics: Iterable[str]) -> str:
        """What the source's nodes may leave out when they are asked for these topics; empty: nothing."""
        if not self._route.filters:
            return ""
        return any_filter_text(self._work(topic).text_for_nodes for topic in topics)

    def take(
        self, partition: Partition, answer: FetchedPartition, config: IntakeConfig, frame: Frame
    ) -> Intake:
        """See `Transit`."""
        work = self._partitions.get(partition)
        if work is None:
            self._forget_released()
            work = self._partitions[partition] = _PartitionWork(
                self._route, self._work(partition.source.topic), partition
            )
        limit = self._limits.of(work.topics)
        sides = {lane: self._limits.of([topic]) for lane, topic in work.sides.items()}
        cut = work.config(config, limit, sides)
        return take_in(answer.records, partition.position, cut, frame, answer.aborted, partition.floors)

    def _forget_released(self) -> None:
        for partition in [each for each in self._partitions if each.is_released]:
            del self._partitions[partition]

    def _work(self, topic: str) -> _TopicWork:
        work = self._topics.get(topic)
        if work is None:
            work = self._topics[topic] = self._make(topic)
        return work

    def _make(self, topic: str) -> _TopicWork:
        if topic == HEARTBEATS_TOPIC and self._heartbeats is not None:
            ways = Ways(main=HEARTBEATS_TOPIC)
            return _TopicWork(self._heartbeats, ways, DeepReason.TRANSFORMED, _TEXT_OF_HEARTBEATS)
        steps = compile_steps(self._route, self._naming, topic)
        ways = ways_of(self._route, self._naming, steps.topic, steps.elsewhere)
        return _TopicWork(steps, ways, _deep_reason(self._route, steps), steps.text_for_nodes)


class _PartitionWork:
    """What is done to one source partition."""

    def __init__(self, route: RouteSpec, topic: _TopicWork, partition: Partition) -> None:
        self._route = route
        self._partition = partition
        self._deep_reason = topic.deep_reason
        lane_map = _lane_map_of(topic.ways, partition)
        self.topics = tuple(lane_map.targets)
        self.sides = {
            lane: lane_map.destinations[lane].topic
            for lane in (lane_map.parked_lane, lane_map.skipped_lane)
            if lane is not None
        }
        """By the lanes for dead letters and notes, their topics."""
        self._aside = Aside(
            route=route.name,
            source=partition.source,
            policies=route.on,
            skipped_lane=lane_map.skipped_lane,
            parked_lane=lane_map.parked_lane,
        )
        self._is_heartbeats = partition.source.topic == HEARTBEATS_TOPIC
        self._steps: Steps | None = None
        self._called_ns = topic.steps.called_ns if isinstance(topic.steps, TopicSteps) else None
        if not isinstance(topic.steps, TopicSteps):
            self._steps = topic.steps
        elif topic.deep_reason not in (None, DeepReason.FORCED) or partition.former:
            policy, number = route.topics.partitions, partition.source.partition
            self._steps = PartitionSteps(topic.steps, lane_map, policy, number, partition)
        self._config: IntakeConfig | None = None
        self._made_of: tuple[object, ...] | None = None

    def config(self, base: IntakeConfig, limit: BatchLimit, sides: Mapping[int, BatchLimit]) -> IntakeConfig:
        """How the partition's answers are cut up. `sides`: what is taken in the lanes that lead aside."""
        reason = self._reason_now()
        if self._config is None or self._made_of != (base, limit, sides, reason):
            self._made_of = (base, limit, sides, reason)
            self._config = replace(
                base,
                deep=reason is not None,
                deep_reason=reason or DeepReason.FORCED,
                is_shallow=self._route.copy is CopyMode.SHALLOW and reason is None,
                origins=None if self._is_heartbeats else base.origins,
                codec=CODECS[self._route.compression],
                gather_bytes=min(base.gather_bytes, limit.split_bytes),
                batch_bytes_max=limit.bytes_max,
                split_bytes=limit.split_bytes,
                side_limits=sides,
                steps=None if reason in (None, DeepReason.FORCED) else self._steps,
                aside=self._aside,
                called_ns=self._called_ns,
            )
        return self._config

    def _reason_now(self) -> DeepReason | None:
        """While some of what comes may be there already, each record is looked at."""
        if self._deep_reason in (None, DeepReason.FORCED):
            position = self._partition.position
            if any(each.end > position for each in self._partition.former):
                return DeepReason.SPREAD
        return self._deep_reason


class PartitionSteps:
    """The `Steps` of one source partition."""

    def __init__(
        self,
        steps: TopicSteps,
        lanes: LaneMap,
        policy: PartitionPolicy,
        partition: int,
        copied: Partition | None = None,
    ) -> None:
        """`copied`: the partition at work, None where nothing is copied."""
        self._steps = steps
        self._targets = lanes.targets
        self._policy = policy
        self._partition = partition
        self._copied = copied

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        """See `Steps`. What is at the destination since its topic had other partitions is left out."""
        made = self._steps.apply(record, self._partition)
        if self._copied is not None and (former := self._copied.former):
            made = [work for work in made if not self._is_there(work, former)]
        return [self._sent(work) for work in made]

    def _is_there(self, work: RecordAtWork, former: Sequence[FormerLanes]) -> bool:
        return any(each.topic == work.to and had_then(each, work.record()) for each in former)

    def _sent(self, work: RecordAtWork) -> tuple[int, Record]:
        lanes = self._targets.get(work.to)
        if lanes is None:
            raise RecordError(f"it is to go to {work.to!r}, which no 'route' step of the route names")
        record = work.record()
        return choose_lane(self._policy, lanes, record), record


def had_then(former: FormerLanes, record: Record) -> bool:
    """Whether the record went to the topic while it had those lanes."""
    if record.offset >= former.end:
        return False
    positions = former.positions
    return record.offset < positions[choose_lane(former.spread, range(len(positions)), record)]


def _lane_map_of(ways: Ways, partition: Partition) -> LaneMap:
    """The lanes that the partition was assigned."""
    counts: dict[str, int] = {}
    for lane in partition.lanes:
        topic, number = lane.destination
        counts[topic] = max(counts.get(topic, 0), number + 1)
    lane_map = ways.lanes(partition.source.partition, lambda topic: counts.get(topic, 1))
    assert lane_map.destinations == tuple(lane.destination for lane in partition.lanes)
    return lane_map


def _deep_reason(route: RouteSpec, steps: TopicSteps) -> DeepReason | None:
    if steps.changes:
        return DeepReason.TRANSFORMED
    if steps.wanted is not None:
        return DeepReason.FILTERED
    if route.topics.partitions is not PartitionPolicy.SAME:
        return DeepReason.SPREAD
    return DeepReason.FORCED if route.copy is CopyMode.DEEP else None
