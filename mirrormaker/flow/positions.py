"""How far exactly-once routes have come, as the topic of positions at their destination says it. Pure.

Its records are JSON (see `kept_view`), so that anybody can read them:

    key   {"cluster": SOURCE CLUSTER ID, "topic": NAME, "topic_id": UUID or null, "partition": N, "to": TOPIC}
    value {"route": NAME, "position": N} and, where it is known, "leader_epoch": N of a record before that;
          where lanes are not all there, "lanes": [N, ...], "to": [[TOPIC, PARTITION], ...] that they lead to;
          "former": [{"topic": NAME, "positions": [N, ...]}, ...], as long as they are not passed: the lanes
          to a topic before it grew, or records were spread by another policy; "spread": POLICY (`key`,
          `round_robin`), there or in such a one: how records were shared out, where that is said

A topic that is deleted and made again has another id, and so another key: it is read from its beginning.

Records that were not born at the source have positions of their own, which count where they are further (see
`bucket_transaction`): the key has "path": [CLUSTER ID, ...] too, the value "arrived": what the transaction
that wrote it brought, as [LANE, FIRST SOURCE OFFSET, RECORDS, DESTINATION OFFSET, CHECKSUM THERE, AT THE
SOURCE], the last three null where they are not known. Where the destination offset is not, it counts source
offsets instead of records: some of them may be of others. Both have "logs_gone": N where the source's log has
become another, as it lost its end: what came on a path does not count where the other says more. (It says
less where a process was killed between the two commits.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from broker.errors import CorruptRecordsError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.kept_view import Document, encode_document
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.topology.model import ClusterId, PartitionPolicy

POSITIONS_TOPIC = "__mirrormaker_positions"
POSITIONS_AT = TopicPartition(POSITIONS_TOPIC, 0)
"""Always there, however many partitions it has: of records with one key only the order within one counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceId:
    """What a position is of."""

    cluster_id: str | None
    topic_id: TopicId
    partition: TopicPartition
    to: str
    """The destination topic."""
    path: tuple[ClusterId, ...] = ()
    """Where the records have been before the source; empty: they were born there."""

    def key(self) -> Document:
        """The key of its record."""
        key: dict[str, object] = {
            "cluster": self.cluster_id,
            "topic": self.partition.topic,
            "topic_id": None if self.topic_id == NO_TOPIC_ID else str(self.topic_id),
            "partition": self.partition.partition,
            "to": self.to,
        }
        return {**key, "path": list(self.path)} if self.path else key

    def on(self, path: tuple[ClusterId, ...]) -> SourceId:
        """The same for records that came on this path."""
        return replace(self, path=path)


def no_place(source: SourceId, error: ValueError) -> CorruptRecordsError:
    """The value of its record is none, as `error` says: which record that is."""
    return CorruptRecordsError(f"{POSITIONS_TOPIC}: {encode_document(source.key()).decode()}: {error}")


class Arrival(NamedTuple):
    """Records side by side at the source and at the destination, or a stretch of the source of which nobody
    said where its records are.
    """

    lane: int
    first: int
    """Source offset."""
    length: int
    to: int | None
    """Destination offset of the first."""
    crc: int | None
    source_crc: int | None

    def followed_by(self, following: Arrival) -> Arrival | None:
        """Both as one; None where they do not lie side by side."""
        if self.to is None or following.to is None:
            is_one = self.to is following.to is None and self.lane == following.lane
            end = following.first + following.length
            return self._replace(length=end - self.first, crc=None, source_crc=None) if is_one else None
        sums = (self.crc, following.crc), (self.source_crc, following.source_crc)
        if following[:2] != (self.lane, self.first + self.length) or following.to != self.to + self.length:
            return None
        crc, source_crc = (None if None in pair else sum(each or 0 for each in pair) for pair in sums)
        return self._replace(length=self.length + following.length, crc=crc, source_crc=source_crc)


class Place(NamedTuple):
    """How far a partition has come."""

    lanes: LanePositions
    leader_epoch: int = -1
    """Of a record of the source before that; -1: not known."""
    arrived: tuple[Arrival, ...] = ()
    """Of records on their way from elsewhere: what the last transaction brought."""
    destinations: tuple[TopicPartition, ...] = ()
    """Where each lane leads."""
    former: tuple[FormerLanes, ...] = ()
    """Of topics whose records are spread otherwise now: what is there beyond the positions."""
    logs_gone: int = 0
    """How often the source's log became another before that, as it lost its end."""
    spread: PartitionPolicy = PartitionPolicy.SAME
    """How records are shared out over the lanes."""


def transactional_id(route: str, key: ProducerKey, path: tuple[ClusterId, ...] = ()) -> str:
    """Whoever has it owns the bucket, or the partition where each has producers of its own; as far as records
    are concerned that came on this path.
    """
    name = f"mirror/{route}/{key.bucket}"
    name = name if key.source is None else f"{name}/{key.source}"
    return f"{name}/from:{'/'.join(path)}" if path else name


def value_of(route: str, place: Place) -> Document:
    """The value of a record."""
    value: dict[str, object] = {"route": route, "position": min(place.lanes)}
    if len(set(place.lanes)) > 1:
        value["lanes"] = list(place.lanes)
        value["to"] = [list(each) for each in place.destinations]
        value |= _said(place.spread)
    former = [each for each in place.former if each.end > min(place.lanes)]
    if former:
        value["former"] = [
            {"topic": each.topic, "positions": list(each.positions), **_said(each.spread)} for each in former
        ]
    if place.leader_epoch >= 0:
        value["leader_epoch"] = place.leader_epoch
    if place.logs_gone:
        value["logs_gone"] = place.logs_gone
    if place.arrived:
        value["arrived"] = [list(each) for each in place.arrived]
    return value


def _said(spread: PartitionPolicy) -> Document:
    return {} if spread is PartitionPolicy.SAME else {"spread": spread.value}


def position_in(value: Document) -> int:
    """Before which offset everything is there. Raises ValueError for what is no such value."""
    position = value.get("position")
    if type(position) is not int or position < 0:
        raise ValueError(f"position {position!r} is no offset")
    return position


def place_in(value: Document, destinations: Sequence[TopicPartition], spread: PartitionPolicy) -> Place:
    """What the value says of lanes that lead there, and get records so. Raises ValueError for what is no such
    value, and where there were other lanes than now, had not come equally far, and it does not say where they
    led.
    """
    position = position_in(value)
    epoch = value.get("leader_epoch", -1)
    if type(epoch) is not int:
        raise ValueError(f"leader epoch {epoch!r} is none")
    try:
        arrived = tuple(Arrival(*each) for each in value.get("arrived", ()))
        former = tuple(
            FormerLanes(each["topic"], tuple(each["positions"]), PartitionPolicy(each.get("spread", spread)))
            for each in value.get("former", ())
        )
        led = tuple(TopicPartition(*each) for each in value.get("to", ()))
        lanes = tuple(map(int, value.get("lanes", ())))
        logs_gone = int(value.get("logs_gone", 0))
        was = PartitionPolicy(value.get("spread", spread))
    except (TypeError, KeyError) as error:
        raise ValueError(f"{value!r} is no place") from error
    to = tuple(destinations)
    place = Place(lanes or (position,) * len(to), epoch, arrived, to, former, logs_gone, spread)
    if not lanes or (led == to and was is spread) or (not led and len(lanes) == len(to)):
        return place
    if len(led) != len(lanes):
        raise ValueError(f"records went to {len(lanes)} partitions, and not equally far")
    return _moved(place, dict(zip(led, lanes, strict=True)), position, was)


def _moved(place: Place, led: Mapping[TopicPartition, int], position: int, was: PartitionPolicy) -> Place:
    """The place where lanes led elsewhere, or `was` how they got records: those to topics whose records are
    spread otherwise now begin where the last of the former lanes stood.
    """
    before, now = _by_topic(led), _by_topic(place.destinations)
    others = {
        topic
        for topic in before.keys() & now.keys()
        if before[topic] != now[topic] or (len(now[topic]) > 1 and was is not place.spread)
    }
    former = tuple(
        FormerLanes(topic, tuple(led[each] for each in before[topic]), was) for topic in sorted(others)
    )
    lanes = tuple(
        min(led[other] for other in before[each.topic]) if each.topic in others else led.get(each, position)
        for each in place.destinations
    )
    return place._replace(lanes=lanes, former=place.former + former)


def _by_topic(destinations: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for each in sorted(destinations):
        found[each.topic].append(each)
    return dict(found)


def has_predecessor(entries: Iterable[Document], source: SourceId) -> bool:
    """Whether one of these keys is of a topic that had the same name before."""
    wanted = source.key()
    return any(
        key["topic_id"] != wanted["topic_id"] and {**key, "topic_id": None} == {**wanted, "topic_id": None}
        for key in entries
        if "topic_id" in key
    )
