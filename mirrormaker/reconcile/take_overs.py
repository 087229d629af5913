"""Decisions that a route may add to a topic of its destination that holds records already, as records of the
control topic. Pure.

    {"route": NAME, "take_over": {"topic": T}}      T: the topic of the destination
    {"topic_id": ID | null, "at_ms", "by"}

Whoever decides writes it, whether or not the route is at work. It is good for the topic that had the name
then, and until the route has a position in what it copies there: whoever copies takes it back then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.flow.kept_view import Document
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """Somebody decided that the route adds to the topic."""

    topic_id: str | None
    """Of the topic of the destination; None where that does not tell."""
    at_ms: int
    by: str

    def is_about(self, topic_id: TopicId) -> bool:
        """Whether the topic that has the name now is the one that was meant."""
        return self.topic_id is None or topic_id == NO_TOPIC_ID or self.topic_id == str(topic_id)


def taken_over(decisions: Mapping[str, TakeOver], there: Mapping[str, ObservedTopic]) -> frozenset[str]:
    """Topics of the destination that decisions are about; `there`: as they are now."""
    return frozenset(
        name
        for name, decision in decisions.items()
        if name in there and decision.is_about(there[name].topic_id)
    )


def take_over_record(
    route: RouteName, name: str, topic_id: TopicId, at_ms: int, by: str
) -> tuple[Document, Document]:
    """What to write to have the route add to the topic."""
    told = None if topic_id == NO_TOPIC_ID else str(topic_id)
    return _key(route, name), {"topic_id": told, "at_ms": at_ms, "by": by}


def settled_records(route: RouteName, names: Collection[str]) -> list[tuple[Document, None]]:
    """What to write once the route has positions in what it copies to these."""
    return [(_key(route, name), None) for name in sorted(names)]


def read_take_over(value: Document) -> TakeOver | None:
    """The record; None for what is none."""
    match value:
        case {"topic_id": None | str() as topic_id, "at_ms": int(at_ms), "by": str(by)}:
            return TakeOver(topic_id=topic_id, at_ms=at_ms, by=by)
    return None


def _key(route: RouteName, name: str) -> Document:
    return {"route": route, "take_over": {"topic": name}}
