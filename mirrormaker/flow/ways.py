"""The ways of a source topic's records: which topics of the destination they may go to, and the lane of each
source partition to each of their partitions. Pure.

Lanes come in this order: the topic's own, dead letters, topics that steps name, notes of what was left out.
There is one lane to each partition: dead letters take that of records which steps send to their topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from broker.client.partitioner import murmur2
from broker.records.record import Record
from broker.types import TopicPartition
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.topology.further_topics import may_copy, parked_topic
from mirrormaker.topology.model import FailurePolicy, PartitionPolicy, RecordErrorPolicy, RouteSpec
from mirrormaker.topology.naming import TopicNaming

_POSITIVE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Of one source topic."""

    main: str
    elsewhere: tuple[str, ...] = ()
    parked: str | None = None
    """The topic of dead letters; `main` where that is one."""
    is_parked_copy: bool = False
    """That may be the copy of another source topic."""
    notes: bool = False
    """Whether something may be left out and noted."""
    policy: PartitionPolicy = PartitionPolicy.SAME

    @property
    def topics(self) -> tuple[str, ...]:
        """All that must be there."""
        return (*self.data_topics, *((SKIPPED_TOPIC,) if self.notes else ()))

    @property
    def data_topics(self) -> tuple[str, ...]:
        """Those of records, dead letters among them."""
        parked = () if self.parked is None else (self.parked,)
        return tuple(dict.fromkeys((self.main, *parked, *self.elsewhere)))

    def spread_topics(self) -> tuple[str, ...]:
        """Those of which the number of partitions decides where a record goes."""
        return () if self.policy is PartitionPolicy.SAME else (self.main, *self.elsewhere)

    def lanes(self, partition: int, count_of: Callable[[str], int]) -> LaneMap:
        """The lanes of a source partition; `count_of` tells how many partitions a topic has."""
        destinations: list[TopicPartition] = []
        targets: dict[str, range] = {}

        def add(topic: str) -> None:
            least = partition + 1 if topic == self.parked else 1
            is_same = self.policy is PartitionPolicy.SAME
            numbers = [partition] if is_same else range(max(count_of(topic), least))
            start = len(destinations)
            destinations.extend(TopicPartition(topic, number) for number in numbers)
            targets[topic] = range(start, len(destinations))

        add(self.main)
        parked = None if self.parked is None else TopicPartition(self.parked, partition)
        skipped_lane = None
        if parked is not None and parked.topic not in (self.main, *self.elsewhere):
            destinations.append(parked)
        for topic in self.elsewhere:
            if topic not in targets:
                add(topic)
        if self.notes:
            skipped_lane = len(destinations)
            destinations.append(TopicPartition(SKIPPED_TOPIC, 0))
        return LaneMap(
            destinations=tuple(destinations),
            is_merged=self.policy is not PartitionPolicy.SAME
            or bool(self.elsewhere)
            or self.is_parked_copy
            or self.notes,
            targets=targets,
            parked_lane=None if parked is None else destinations.index(parked),
            skipped_lane=skipped_lane,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMap:
    """The lanes of one source partition."""

    destinations: tuple[TopicPartition, ...]
    is_merged: bool
    """Other source partitions may write to some of these too."""
    targets: dict[str, range]
    """By topic, the lanes to its partitions."""
    parked_lane: int | None
    skipped_lane: int | None

    def is_spread(self) -> bool:
        """Whether records to one topic may take one lane or another."""
        return any(len(lanes) > 1 for lanes in self.targets.values())

    def widened(self, former: Collection[TopicPartition]) -> LaneMap:
        """The same, and lanes to further partitions of its topics: behind those that it has, which are
        numbered anew.
        """
        if not former:
            return self
        destinations: list[TopicPartition] = []
        targets: dict[str, range] = {}
        for topic, lanes in self.targets.items():
            start = len(destinations)
            destinations.extend(self.destinations[lane] for lane in lanes)
            destinations.extend(to for to in former if to.topic == topic)
            targets[topic] = range(start, len(destinations))

        def number(lane: int | None) -> int | None:
            if lane is None:
                return None
            if self.destinations[lane] not in destinations:
                destinations.append(self.destinations[lane])
            return destinations.index(self.destinations[lane])

        parked_lane, skipped_lane = number(self.parked_lane), number(self.skipped_lane)
        return LaneMap(
            destinations=tuple(destinations),
            is_merged=True,
            targets=targets,
            parked_lane=parked_lane,
            skipped_lane=skipped_lane,
        )


def ways_of(route: RouteSpec, naming: TopicNaming, main: str, elsewhere: Sequence[str]) -> Ways:
    """The ways of a source topic that becomes `main`, and of which steps send records `elsewhere`."""
    on = route.on
    has_steps = bool(route.filters or route.transforms)
    skips = FailurePolicy.SKIP_AND_RECORD in (on.oversize, on.not_shallow) or (
        has_steps and on.record_error is RecordErrorPolicy.SKIP_AND_RECORD
    )
    parked = parked_topic(route, main)
    return Ways(
        main=main,
        elsewhere=tuple(elsewhere),
        parked=parked,
        is_parked_copy=parked is not None and may_copy(naming, parked),
        notes=skips,
        policy=route.topics.partitions,
    )


def choose_lane(policy: PartitionPolicy, lanes: range, record: Record) -> int:
    """The lane of a record among those to one topic; what is fetched again takes the same."""
    count = len(lanes)
    if count == 1 or policy is PartitionPolicy.SAME:
        return lanes[0]
    if policy is PartitionPolicy.KEY and record.key is not None:
        return lanes[(murmur2(record.key) & _POSITIVE) % count]
    return lanes[in_turn(record.offset, count)]


def in_turn(offset: int, count: int) -> int:
    """Which of `count` lanes the record at `offset` takes: each one in every round, which another one begins.

    By `offset % count`, lanes stay empty where only every second offset is of a record (markers between).
    """
    rounds = offset // count
    return (offset + rounds + rounds // count) % count
