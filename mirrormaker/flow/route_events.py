"""What happened to a route lately: for `status`, and for the log as it happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.clock import Clock
from broker.telemetry import logger
from mirrormaker.topology.model import RouteName

EVENTS_KEPT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a route."""

    at_ms: int
    name: str
    details: Mapping[str, object]


class RouteEvents:
    """The last ones of one route in this process; they outlive its being started anew."""

    def __init__(self, route: RouteName, clock: Clock) -> None:
        self.begun_anew: dict[str, dict[str, object]] = {}
        """Topics that the mirror keeps, and whose cluster lost them while they were in use."""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._clock = clock
        self._log = logger("route").bind(route=route)

    def note(self, event: str, **details: object) -> None:
        """This happened, and somebody may want to know."""
        self._keep(event, details)
        self._log.warning(event, **details)

    def note_end(self, event: str, **details: object) -> None:
        """As `note`, of something that is well again."""
        self._keep(event, details)
        self._log.info(event, **details)

    def note_begun_anew(self, topic: str, cluster: str, entries: int, reason: str) -> None:
        """See `BegunAnew`."""
        self.begun_anew[topic] = {"cluster": cluster, "at_ms": self._clock.now_ms()}
        self.note("kept_topic_begun_anew", topic=topic, cluster=cluster, entries=entries, reason=reason)

    def _keep(self, event: str, details: Mapping[str, object]) -> None:
        self._events.append(Event(at_ms=self._clock.now_ms(), name=event, details=dict(details)))

    def describe(self) -> list[dict[str, Any]]:
        """As plain data, the oldest first."""
        return [
            {"at_ms": event.at_ms, "name": event.name, "details": dict(event.details)}
            for event in self._events
        ]
