"""Positions that are brought along are those of topics that there are; who has the topics is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client.metadata import PartitionMetadata, TopicMetadata
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.reconcile import former_group
from mirrormaker.reconcile.former_group import _found
from mirrormaker.reconcile.position_places import Stored
from mirrormaker.topology.model import Membership
from tests.reconcile.test_position_places import route


class _Source:
    """Of a topic `u` and what is told of a topic `t`, which the route takes, or of another."""

    def __init__(self, code: ErrorCode, *, is_listed: bool, name: str = "t") -> None:
        self.told = TopicMetadata(name=name, error=code)
        self.is_listed = is_listed

    async def refresh(self, topics: Collection[str] | None = None) -> Any:
        there = TopicMetadata(name="u", partitions={0: PartitionMetadata(leader=1)})
        listed = {"u": there} | ({self.told.name: self.told} if self.is_listed else {})
        return SimpleNamespace(topics=listed if topics is None else listed | {self.told.name: self.told})


class _Starting(_Source):
    """It has just started, and does not know of the topic yet."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, is_listed=False)

    async def refresh(self, topics: Collection[str] | None = None) -> Any:
        told = await super().refresh(topics)
        if topics is not None:
            self.told, self.is_listed = TopicMetadata(name="t", partitions=told.topics["u"].partitions), True
        return told


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_group, "LOOK_AGAIN_MS", 1)


def found(
    source: Any, topic: str = "t", membership: Membership = Membership.ZOOKEEPER
) -> set[TopicPartition]:
    """`membership`: as it is now."""
    stored = {TopicPartition("u", 0): Stored(30), TopicPartition(topic, 0): Stored(50)}
    here = frozenset[TopicPartition]()
    return set(asyncio.run(_found(route(membership), source, stored, here, is_said=True)))


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE])
def test_positions_of_a_topic_that_is_not_shown_are_waited_for(code: ErrorCode, is_listed: bool) -> None:
    with pytest.raises(ProtocolError, match="topic 't'"):
        found(_Source(code, is_listed=is_listed))


@pytest.mark.parametrize("is_listed", [False, True])
def test_those_of_a_topic_that_is_gone_are_not(is_listed: bool) -> None:
    source = _Source(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, is_listed=is_listed)
    assert found(source) == {TopicPartition("u", 0)}


def test_those_of_a_topic_that_the_route_does_not_take_any_more_are_not() -> None:
    source = _Source(ErrorCode.TOPIC_AUTHORIZATION_FAILED, is_listed=False, name="others")
    assert found(source, "others") == {TopicPartition("u", 0)}


def test_a_topic_that_a_node_does_not_know_of_yet_is_none_that_is_gone() -> None:
    assert found(_Starting()) == {TopicPartition("u", 0), TopicPartition("t", 0)}


def test_a_topic_that_zookeeper_has_and_nodes_do_not_show_is_waited_for() -> None:
    """It tells of no positions in topics that are gone, and what was brought away from it is deleted."""
    source = _Source(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, is_listed=False)
    with pytest.raises(ProtocolError, match="topic 't'"):
        found(source, membership=Membership.COORDINATOR)
