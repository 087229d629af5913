"""Partitions that stand by a failure policy of their route, as records of the control topic. Pure.

    {"route": NAME, "halt": {"topic": T, "partition": N}}      partition -1: the topic as a whole
    {"reason", "problem", "position", "resume_at", "lost", "topic_id", "at_ms", "by", "stops_route", "digest",
     "released": null | {"at_ms", "by"}}

Whoever copies the partition writes it, and takes it back once copying has gone on. To release one is to fill
in `released`: whoever copies the partition then notes what is left out, and goes on. A halt that stops its
route stops it in every process whose file says the same of the route (`digest`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.topology.model import RouteName

_KINDS = frozenset(kind.value for kind in TroubleKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Somebody wants to go on behind a halt."""

    at_ms: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A partition stands."""

    trouble: Trouble
    at_ms: int
    by: str
    """The daemon that halted."""
    stops_route: bool
    digest: str
    """Of the route as that daemon's file says it."""
    released: Release | None = None

    def stops(self, digest: str) -> bool:
        """Whether it keeps a route of this digest from running."""
        return self.stops_route and self.released is None and self.digest == digest


def halt_key(route: RouteName, source: TopicPartition) -> Document:
    """Key of the record about a partition."""
    return {"route": route, "halt": {"topic": source.topic, "partition": source.partition}}


def halt_value(halt: Halt) -> Document:
    """The record."""
    trouble = halt.trouble
    released = halt.released
    return {
        "reason": trouble.kind.value,
        "problem": trouble.problem,
        "position": trouble.position,
        "resume_at": trouble.resume_at,
        "lost": None if trouble.lost is None else list(trouble.lost),
        "topic_id": trouble.topic_id,
        "at_ms": halt.at_ms,
        "by": halt.by,
        "stops_route": halt.stops_route,
        "digest": halt.digest,
        "released": None if released is None else {"at_ms": released.at_ms, "by": released.by},
    }


def read_halt(source: TopicPartition, value: Document) -> Halt | None:
    """The record; None for what is none, as that of a newer version."""
    match value:
        case {
            "reason": str(reason),
            "problem": str(problem),
            "position": int(position),
            "resume_at": int(resume_at),
            "lost": lost,
            "at_ms": int(at_ms),
            "by": str(by),
            "stops_route": bool(stops_route),
            "digest": str(digest),
            "released": released,
        } if reason in _KINDS:
            trouble = Trouble(
                kind=TroubleKind(reason),
                source=source,
                position=position,
                resume_at=resume_at,
                problem=problem,
                lost=_lost_of(lost),
                topic_id=_topic_id_of(value.get("topic_id")),
            )
            return Halt(
                trouble=trouble,
                at_ms=at_ms,
                by=by,
                stops_route=stops_route,
                digest=digest,
                released=_release_of(released),
            )
    return None


def describe_halts(halts: Mapping[TopicPartition, Halt]) -> list[dict[str, Any]]:
    """As plain data, for `status`."""
    return [
        {"topic": source.topic, "partition": source.partition, **halt_value(halt)}
        for source, halt in sorted(halts.items())
    ]


def release_records(
    route: RouteName, halts: Mapping[TopicPartition, Halt], release: Release
) -> list[tuple[Document, Document | None]]:
    """What to write to have these go on; nothing for those that have been released before."""
    return [
        (halt_key(route, source), halt_value(replace(halt, released=release)))
        for source, halt in sorted(halts.items())
        if halt.released is None
    ]


def _lost_of(value: object) -> tuple[int, int] | None:
    match value:
        case [int(first), int(end)]:
            return first, end
    return None


def _topic_id_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _release_of(value: object) -> Release | None:
    match value:
        case {"at_ms": int(at_ms), "by": str(by)}:
            return Release(at_ms=at_ms, by=by)
    return None
