"""Partitions of a source that may lose what is not copied yet: told when one comes into danger, and when it
is out of it. Pure, but for the events that it tells.

One that is given up in danger, as at a rebalance, is no safer for that: it is told of until whoever has it
now must have noticed, and then its being given up is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from broker.types import TopicPartition
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.route_events import RouteEvents
from mirrormaker.flow.standing import HALTED, UNREADABLE, standing_of
from mirrormaker.flow.timing.risk import Course, Retention, Risk, Standing

RETENTION_PART = 0.5
"""Whatever margin a route wants: what the source keeps for a day is in no danger with more than half of it
left.
"""
RELIEF = 1.2
"""Times the bound: what has so much left is in danger no more."""
HANDOVER_MS = 30_000
"""So long a partition in danger is told of that is not copied here any more: it may come back at once."""
_STANDING = frozenset({HALTED, UNREADABLE})


class RetentionWatch:
    """Of one route in this process. Times are those of the clock that never goes back."""

    def __init__(self, margin_ms: int, events: RouteEvents) -> None:
        self.margin_ms = margin_ms
        """What will be deleted sooner is in danger."""
        self._events = events
        self._courses: dict[TopicPartition, Course] = {}
        self._risks: dict[TopicPartition, Risk] = {}
        self._in_danger: set[TopicPartition] = set()
        self._given_up_ms: dict[TopicPartition, int] = {}
        """Since when those of them are not copied here that are not."""

    @property
    def in_danger(self) -> int:
        """Partitions."""
        return len(self._in_danger)

    def is_in_danger(self, partition: Partition) -> bool:
        """Whether it is to be copied before others."""
        return partition.source in self._in_danger

    def hastens(self, partitions: Mapping[TopicPartition, Partition]) -> bool:
        """Whether the route of these gains by going before others: one that stands gains nothing."""
        return any(
            source in partitions and standing_of(partitions[source]).state not in _STANDING
            for source in self._in_danger
        )

    def look(
        self,
        partition: Partition,
        start: int,
        oldest_ms: int | None,
        retention: Retention | None,
        now_ms: int,
        bytes_per_offset: float | None,
    ) -> None:
        """Something of the partition waits, the first of it of the time `oldest_ms`. `start`: the first
        offset of the source, -1 when it does not tell; so `retention` None. `bytes_per_offset`: how large
        its records are, None where nobody knows.
        """
        source = partition.source
        course = self._courses.get(source)
        if course is None:
            course = self._courses[source] = Course()
        course.observe(
            Standing(
                at_ms=now_ms,
                position=partition.waits_from,
                start=start,
                end=partition.source_end,
                oldest_ms=oldest_ms,
                bytes_per_offset=bytes_per_offset,
            )
        )
        risk = course.risk(retention)
        if risk is None:
            self._risks.pop(source, None)
        else:
            self._risks[source] = risk
        self._judge(source, risk, self._bound_ms(retention))

    def _bound_ms(self, retention: Retention | None) -> float:
        kept_ms = None if retention is None else retention.ms
        return self.margin_ms if kept_ms is None else min(self.margin_ms, kept_ms * RETENTION_PART)

    def _judge(self, source: TopicPartition, risk: Risk | None, bound_ms: float) -> None:
        left_ms = None if risk is None else risk.seconds * 1000
        if source in self._in_danger:
            if left_ms is None or left_ms > bound_ms * RELIEF:
                self._relieve(source)
        elif risk is not None and risk.seconds * 1000 < bound_ms:
            self._in_danger.add(source)
            self._events.note(
                "retention_risk_met",
                partition=str(source),
                seconds_left=round(risk.seconds, 1),
                bound_seconds=bound_ms / 1000,
                deleted_by=risk.cause.value,
            )

    def _relieve(self, source: TopicPartition) -> None:
        self._in_danger.discard(source)
        self._events.note_end("retention_risk_passed", partition=str(source))

    def caught_up(self, source: TopicPartition) -> None:
        """Nothing of it waits."""
        self._courses.pop(source, None)
        self._risks.pop(source, None)
        if source in self._in_danger:
            self._relieve(source)

    def keep(self, sources: Iterable[TopicPartition], now_ms: int) -> None:
        """Only these are copied here."""
        gone = self._in_danger.difference(sources)
        self._given_up_ms = {source: self._given_up_ms.get(source, now_ms) for source in gone}
        for source, since_ms in self._given_up_ms.items():
            if now_ms - since_ms >= HANDOVER_MS:
                self._in_danger.discard(source)
                self._events.note_end("retention_risk_given_up", partition=str(source))
        for kept in (self._courses, self._risks):
            for source in kept.keys() - self._in_danger.union(sources):
                del kept[source]

    def rest(self) -> None:
        """Nothing is copied here for now: what is in danger stays so until copying goes on."""
        self._given_up_ms.clear()

    def describe(self, source: TopicPartition) -> Mapping[str, Any] | None:
        """As plain data; None where no deletion is in sight."""
        risk = self._risks.get(source)
        if risk is None:
            return None
        return {
            "seconds": round(risk.seconds, 3),
            "deleted_by": risk.cause.value,
            "in_danger": source in self._in_danger,
        }
