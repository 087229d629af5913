"""Topics of the destination that are made anew while a route copies to them; its metadata is stood in for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.flow.renewed_topics import RenewedTopics
from mirrormaker.flow.topic_looks import TopicLooks


class Destination:
    """What its metadata says, and how often somebody was asked to look."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.asked = 0
        cluster: Any = self
        self.looks = TopicLooks(self._look_soon)
        self.renewed = RenewedTopics(cluster, self.looks)

    def partitions(self, topic: str) -> list[int]:
        return list(range(self.counts.get(topic, 0)))

    def _look_soon(self) -> None:
        self.asked += 1

    def tells(self, number: int | None, count: int, topic: str = "copies") -> frozenset[str]:
        topic_id = NO_TOPIC_ID if number is None else TopicId(UUID(int=number))
        self.topics[topic], self.counts[topic] = SimpleNamespace(topic_id=topic_id), count
        return self.renewed.find_held(list(self.topics))


def test_a_topic_with_other_partitions_is_held_until_a_look_has_begun_and_ended_since() -> None:
    there = Destination()
    assert there.tells(1, 3) == there.tells(1, 0) == frozenset()
    assert there.tells(2, 4) == there.tells(2, 4) == {"copies"}
    assert there.asked == 1
    there.looks.looked()
    assert there.tells(2, 4) == {"copies"}
    assert there.asked == 2
    there.looks.looked()
    assert there.tells(2, 4) == frozenset()
    assert there.tells(3, 4) == frozenset()
    assert there.asked == 2


def test_a_topic_that_grows_that_is_made_anew_alike_or_of_which_no_id_is_told_is_not_held() -> None:
    there = Destination()
    shapes = (1, 3), (1, 4), (2, 4), (None, 6), (None, 7), (3, 7)
    assert [there.tells(*shape) for shape in shapes] == [frozenset()] * len(shapes)


def test_a_topic_that_is_copied_to_no_more_is_forgotten() -> None:
    there = Destination()
    there.tells(1, 3)
    assert there.tells(2, 4) == {"copies"}
    assert there.renewed.find_held([]) == frozenset()
    assert there.tells(2, 4) == frozenset()


def test_what_becomes_as_it_was_is_held_no_more() -> None:
    there = Destination()
    there.tells(1, 3)
    assert there.tells(2, 4) == {"copies"}
    assert there.tells(3, 3) == frozenset()
