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
        return SimpleNamespace(topics=listed if topics is None else {self.told.name: self.told})


def found(source: Any, topic: str = "t") -> set[TopicPartition]:
    stored = {TopicPartition("u", 0): Stored(30), TopicPartition(topic, 0): Stored(50)}
    here = frozenset[TopicPartition]()
    return set(asyncio.run(_found(route(Membership.ZOOKEEPER), source, stored, here, is_said=True)))


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
