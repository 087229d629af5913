"""The topics of the cluster as groups see them: names, ids, and how many partitions there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from broker.types import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic."""

    name: str
    topic_id: TopicId
    partition_count: int


class Topics:
    """All topics at one moment; immutable, so that the same object means that nothing changed."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.topic_id: topic for topic in self._by_name.values()}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topics) and self._by_name == other._by_name

    def __hash__(self) -> int:
        return id(self)

    def named(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self._by_name.get(name)

    def of_id(self, topic_id: TopicId) -> Topic | None:
        """The topic of this id, if there is one."""
        return self._by_id.get(topic_id)


class TopicDirectory(Protocol):
    """Where a coordinator looks topics up."""

    def current(self) -> Topics:
        """The topics of now; the same object as before while no topic came, went or grew."""
        ...
