"""One picture of a route out of those of the workers that run it. Pure.

Counts are added up, partitions and the like put together: each partition is one worker's. Of what can only be
one thing the worst counts. A part of the picture that has no rule here is treated by what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirrormaker.workers.audit_pictures import merge_audits
from mirrormaker.workers.link_pictures import merge_ways
from mirrormaker.workers.timing_pictures import merge_timings

Picture = Mapping[str, Any]

EVENTS_MAX = 50
_STATES = ("failed", "starting", "running", "superseded", "paused", "standing by", "stopped")
"""The first of them that a worker is in is that of the route."""


def merge_routes(pictures: Sequence[Picture]) -> dict[str, Any]:
    """The route that these workers run; at least one."""
    keys = dict.fromkeys(key for picture in pictures for key in picture)
    merged: dict[str, Any] = {}
    for key in keys:
        values = [picture[key] for picture in pictures if key in picture]
        merged[key] = _RULES.get(key, _put_together)(values)
    return merged


def starting_route() -> dict[str, Any]:
    """A route of which no worker has told yet."""
    return {
        "state": "starting",
        "error": None,
        "reason": None,
        "failures": 0,
        "started_ms": None,
        "pause": None,
        "paused_topics": {},
        "halts": [],
        "control_problem": None,
        "partitions": {},
        "events": [],
    }


def _worst_state(states: Sequence[str]) -> str:
    return min(states, key=_STATES.index)


def _said(values: Sequence[str | None]) -> str | None:
    """What several say, each thing once."""
    said = [value for value in dict.fromkeys(values) if value]
    return "; ".join(said) if said else None


def _any(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _largest(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _latest_events(lists: Sequence[Sequence[Picture]]) -> list[Picture]:
    events = [event for events in lists for event in events]
    return sorted(events, key=lambda event: int(event["at_ms"]))[-EVENTS_MAX:]


def _each_once(lists: Sequence[Sequence[Picture]]) -> list[Picture]:
    """All look at the same destination."""
    seen: list[Picture] = []
    for one in (one for listed in lists for one in listed):
        if one not in seen:
            seen.append(one)
    return seen


def _added_up(values: Sequence[Any]) -> Any:
    """Numbers as their sum, mappings key by key."""
    if isinstance(values[0], Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _added_up([value[key] for value in values if key in value]) for key in keys}
    return sum(values)


def _put_together(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    match known:
        case []:
            return None
        case [Mapping(), *_]:
            return {key: item for value in known for key, item in value.items()}
        case [list(), *_]:
            return [item for value in known for item in value]
        case [bool(), *_]:
            return any(known)
        case [int() | float(), *_]:
            return sum(known)
    return known[0]


_RULES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "state": _worst_state,
    "error": _said,
    "reason": _any,
    "failures": _largest,
    "started_ms": _largest,
    "pause": _any,
    "halts": _any,
    "switch": _any,
    "control_problem": _said,
    "reconcile_problem": _said,
    "delivery_problem": _said,
    "group_generation": _largest,
    "counts": _added_up,
    "events": _latest_events,
    "drift": _each_once,
    "audit": merge_audits,
    "link": merge_ways,
    "timing": merge_timings,
}
