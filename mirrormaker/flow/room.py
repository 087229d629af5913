"""How much a route with a limit may fetch ahead of what it may send, and of what first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from mirrormaker.flow.partition import Partition


class Kind(IntEnum):
    """What comes next of a partition."""

    NEW = 0
    OLD = 1
    ENDANGERED = 2
    """The source will soon delete it."""


TopicKey = tuple[Kind, str]
"""What comes next of a topic of the destination."""
FetchTurn = tuple[bool, float, float]
"""Brokers fill an answer in the order asked: those of the least are asked for first."""


class TopicRoom(NamedTuple):
    """For the partitions of a topic whose next records are of one kind."""

    bytes: int | None
    """What each of them may be asked for; None: as much as the buffers hold."""
    turn: FetchTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one of several fetches at a time may bring."""

    answer_bytes: int | None = None
    """Of all partitions; None: as much as the buffers hold."""
    topics: Mapping[TopicKey, TopicRoom] = field(default_factory=dict)
    is_contended: bool = False
    """Whether several topics want more than passes: then it matters who comes first."""

    def of(self, partition: Partition, kind: Kind) -> TopicRoom:
        """For one partition of the route."""
        return self.topics[kind, partition.lanes[0].destination.topic]

    def bound_answer(self, wanted: int) -> int:
        """How much of `wanted` bytes of all partitions may be asked for."""
        return wanted if self.answer_bytes is None else min(wanted, self.answer_bytes)


NO_BOUND = Room()
