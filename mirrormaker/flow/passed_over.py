"""What a route passes over as it goes on elsewhere, noted at the destination beside what else it leaves out;
see `skips`. A seek has it do so, or a source that has forgotten its position (`start`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from broker.clock import SystemClock
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.skips import TIMEOUT_MS
from mirrormaker.topology.model import ClusterSpec, RouteName

Moves = Mapping[TopicPartition, tuple[int, int]]
"""Source offsets, from where to where."""


class Passing(Enum):
    """Why offsets are passed over, and how it is said."""

    SEEK = "seek"
    POSITION_FORGOTTEN = "position_forgotten"

    @property
    def problem(self) -> str:
        """In front of the offsets."""
        if self is Passing.SEEK:
            return "a seek passed over the offsets"
        return "the source had forgotten the position of the route, which began behind the offsets"


async def note_passed_over(destination: ClusterSpec, route: RouteName, moves: Moves) -> None:
    """Return once the notes of a seek are safe. Raises BrokerError."""
    notes = describe_passed_over(route, moves, Passing.SEEK, SystemClock().now_ms())
    if not notes:
        return
    async with (
        open_cluster(destination) as cluster,
        KeptTopic(cluster, SKIPPED_TOPIC, timeout_ms=TIMEOUT_MS) as topic,
    ):
        await topic.put(notes)


def describe_passed_over(
    route: RouteName, moves: Moves, why: Passing, at_ms: int
) -> list[tuple[Document, Document]]:
    """Keys and values of the notes; what moves back passes nothing over. Pure."""
    return [_note(route, source, *move, why, at_ms) for source, move in moves.items() if move[1] > move[0]]


def _note(
    route: RouteName, source: TopicPartition, start: int, end: int, why: Passing, at_ms: int
) -> tuple[Document, Document]:
    key = {"route": route, "topic": source.topic, "partition": source.partition, "offset": start}
    value = {
        "reason": why.value,
        "problem": f"{why.problem} {start} to {end - 1}",
        "at_ms": at_ms,
        "resumed_at": end,
        "lost": [start, end],
    }
    return key, value
