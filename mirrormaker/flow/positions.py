"""How far exactly-once routes have come, as the topic of positions at their destination says it. Pure.

Its records are JSON (see `kept_view`), so that anybody can read them:

    key   {"cluster": SOURCE CLUSTER ID, "topic": NAME, "topic_id": UUID or null, "partition": N, "to": TOPIC}
    value {"route": NAME, "position": N} and, where lanes are not all there, "lanes": [N, ...]

A topic that is deleted and made again has another id, and so another key: it is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.bucket_transaction import LanePositions
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.producers import ProducerKey

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

    def key(self) -> Document:
        """The key of its record."""
        return {
            "cluster": self.cluster_id,
            "topic": self.partition.topic,
            "topic_id": None if self.topic_id == NO_TOPIC_ID else str(self.topic_id),
            "partition": self.partition.partition,
            "to": self.to,
        }


def transactional_id(route: str, key: ProducerKey) -> str:
    """Whoever has it owns the bucket, or the partition where each has producers of its own."""
    name = f"mirror/{route}/{key.bucket}"
    return name if key.source is None else f"{name}/{key.source}"


def value_of(route: str, positions: LanePositions) -> Document:
    """The value of a record."""
    value: dict[str, object] = {"route": route, "position": min(positions)}
    if len(set(positions)) > 1:
        value["lanes"] = list(positions)
    return value


def positions_in(value: Document, lanes: int) -> LanePositions:
    """Where each of so many lanes goes on. Raises ValueError for what is no such value, and where there were
    other lanes than now and they had not come equally far: then no start is exact.
    """
    position, each = value.get("position"), value.get("lanes")
    if not isinstance(position, int) or position < 0:
        raise ValueError(f"position {position!r} is no offset")
    if each is None:
        return (position,) * lanes
    if not isinstance(each, list) or not all(isinstance(at, int) for at in each):
        raise ValueError(f"lanes {each!r} are no offsets")
    if len(each) != lanes:
        raise ValueError(
            f"records went to {len(each)} partitions and now to {lanes}, and those had not come equally far"
        )
    return tuple(each)


def has_predecessor(entries: Iterable[Document], source: SourceId) -> bool:
    """Whether one of these keys is of a topic that had the same name before."""
    wanted = source.key()
    return any(
        key["topic_id"] != wanted["topic_id"] and {**key, "topic_id": None} == {**wanted, "topic_id": None}
        for key in entries
        if "topic_id" in key
    )


def describe_positions(positions: Mapping[TopicPartition, LanePositions]) -> dict[str, list[int]]:
    """For logs."""
    return {str(source): list(lanes) for source, lanes in positions.items()}
