"""Topics of the source that are others than before, and such as were only taken for deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.successors import Successors
from mirrormaker.flow.trouble import Trouble, TroubleKind

SOURCE = TopicPartition("flights", 0)
ID, OTHER_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))


class Scene:
    """A source whose topic has an id, and the halts of a route."""

    def __init__(self, *, is_missed: bool = False) -> None:
        self.met: list[Trouble] = []
        self.is_missed = is_missed
        self.source: Any = SimpleNamespace(topics={})
        stood = SimpleNamespace(kind=TroubleKind.TOPIC_DELETED)
        halts: Any = SimpleNamespace(standing=lambda _: stood if self.is_missed else None)
        arbiter: Any = SimpleNamespace(meet=self.met.append)
        self.successors = Successors(self.source, halts, arbiter)

    def begin(self, topic_id: TopicId, point: StartingPoint) -> list[TroubleKind]:
        self.source.topics["flights"] = SimpleNamespace(topic_id=topic_id)
        self.successors.notice([SOURCE])
        self.successors.begin({SOURCE: point})
        kinds = [trouble.kind for trouble in self.met]
        self.met.clear()
        return kinds


def test_a_topic_with_another_id_is_another() -> None:
    scene = Scene()
    assert scene.begin(ID, StartingPoint((5,))) == []
    assert scene.begin(OTHER_ID, StartingPoint((0,))) == [TroubleKind.TOPIC_RECREATED]
    assert scene.begin(OTHER_ID, StartingPoint((7,))) == []


@pytest.mark.parametrize(
    ("topic_id", "names_topic", "is_other"),
    [(ID, True, False), (ID, False, True), (NO_TOPIC_ID, False, True)],
)
def test_a_topic_that_was_taken_for_deleted_is_the_same_where_its_position_says_so(
    topic_id: TopicId, names_topic: bool, is_other: bool
) -> None:
    scene = Scene(is_missed=True)
    found = scene.begin(topic_id, StartingPoint((5,), names_topic=names_topic))
    assert found == ([TroubleKind.TOPIC_RECREATED] if is_other else [])


def test_a_topic_that_is_another_without_a_position_of_before_stands_where_it_begins() -> None:
    """There it is known again by the next process."""
    scene = Scene(is_missed=True)
    scene.source.topics["flights"] = SimpleNamespace(topic_id=NO_TOPIC_ID)
    scene.successors.notice([SOURCE])
    scene.successors.begin({SOURCE: StartingPoint((5,))})
    assert [(each.position, each.resume_at) for each in scene.met] == [(5, 5)]


def test_a_topic_that_was_taken_for_deleted_is_the_same_where_its_id_is_that_of_before() -> None:
    """Though positions say nothing of it, as those in ZooKeeper. It was unknown for a moment."""
    scene = Scene()
    assert scene.begin(ID, StartingPoint((5,))) == []
    scene.is_missed = True
    scene.source.topics.clear()
    scene.successors.notice([SOURCE])
    assert scene.begin(ID, StartingPoint((5,))) == []
    scene.source.topics.clear()
    scene.successors.notice([SOURCE])
    assert scene.begin(OTHER_ID, StartingPoint((5,))) == [TroubleKind.TOPIC_RECREATED]
