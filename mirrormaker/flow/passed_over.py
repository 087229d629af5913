"""What a seek passes over, noted at the destination beside what else a route leaves out; see `skips`."""

from __future__ import annotations

from collections.abc import Mapping

from broker.clock import SystemClock
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.skips import TIMEOUT_MS
from mirrormaker.topology.model import ClusterSpec, RouteName

REASON = "seek"


async def note_passed_over(
    destination: ClusterSpec, route: RouteName, moves: Mapping[TopicPartition, tuple[int, int]]
) -> None:
    """Return once the notes are safe; `moves`: source offsets from where to where. What moves back passes
    nothing over. Raises BrokerError.
    """
    at_ms = SystemClock().now_ms()
    notes = [_note(route, source, *move, at_ms) for source, move in moves.items() if move[1] > move[0]]
    if not notes:
        return
    async with (
        open_cluster(destination) as cluster,
        KeptTopic(cluster, SKIPPED_TOPIC, timeout_ms=TIMEOUT_MS) as topic,
    ):
        await topic.put(notes)


def _note(
    route: RouteName, source: TopicPartition, start: int, end: int, at_ms: int
) -> tuple[Document, Document]:
    key = {"route": route, "topic": source.topic, "partition": source.partition, "offset": start}
    value = {
        "reason": REASON,
        "problem": f"a seek passed over the offsets {start} to {end - 1}",
        "at_ms": at_ms,
        "resumed_at": end,
        "lost": [start, end],
    }
    return key, value
