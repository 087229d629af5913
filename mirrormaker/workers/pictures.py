"""One picture of a route out of those of the workers that run it. Pure.

Counts are added up, partitions and the like put together: each partition is one worker's. Of what can only be
one thing the worst counts. A part of the picture that has no rule here is treated by what it is made of.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mirrormaker.workers.audit_pictures import merge_audits
from mirrormaker.workers.ledger_pictures import merge_groups, merge_ledgers
from mirrormaker.workers.link_pictures import merge_ways
from mirrormaker.workers.problems import told_once
from mirrormaker.workers.timing_pictures import merge_timings
from mirrormaker.workers.totals import PastTotals, Totals, added_up

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


_Path = tuple[str, ...]
RouteTotal = tuple[str, _Path]
"""A route, and where in its picture."""
_LATENCY: _Path = ("timing", "latency")
_TOTALS: Sequence[_Path] = (
    ("counts",),
    _LATENCY,
    ("timing", "objective", "breaches"),
    ("timing", "objective", "breached_ms"),
    ("link", "throttled_ms"),
    ("ledger", "pages_given_up"),
    ("groups", "moved"),
)
"""What only grows as long as a process lives. Who takes partitions over audits them from the beginning, so
counts of audits are no totals.
"""


def totals_of_routes(pictures: Mapping[str, Picture]) -> dict[RouteTotal, Totals]:
    """What a worker has counted of its routes."""
    totals: dict[RouteTotal, Totals] = {}
    for name, picture in pictures.items():
        for path in _TOTALS:
            found = _at(picture, path)
            if path == _LATENCY and found is not None:
                found = {basis: {**kind, "recent": {}} for basis, kind in found.items()}
            if found is not None:
                totals[name, path] = found
    return totals


def with_past(name: str, picture: Picture, past: PastTotals[RouteTotal]) -> dict[str, Any]:
    """A route as merged, with what processes counted of it that are gone."""
    added = dict(picture)
    for path in _TOTALS:
        if (total := _at(picture, path)) is not None:
            _put_at(added, path, past.added_to((name, path), total))
    return added


def past_kinds(names: Iterable[str]) -> set[RouteTotal]:
    """All that there may be of these routes."""
    return {(name, path) for name in names for path in _TOTALS}


def _at(picture: Any, path: _Path) -> Any:
    """What is there; None: nothing."""
    for key in path:
        picture = None if picture is None else picture.get(key)
    return picture


def _put_at(picture: dict[str, Any], path: _Path, value: Any) -> None:
    """Mappings on the way are replaced, not changed."""
    *way, last = path
    for key in way:
        inner = picture[key] = dict(picture[key])
        picture = inner
    picture[last] = value


def _worst_state(states: Sequence[str]) -> str:
    return min(states, key=_STATES.index)


def _any(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _largest(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _longest(lists: Sequence[Sequence[Picture]]) -> Sequence[Picture]:
    """All read the same of the destination; one that begins has not yet."""
    return max(lists, key=len)


def _latest_events(lists: Sequence[Sequence[Picture]]) -> list[Picture]:
    """What all of them meet, as of a topic, each tells: it happened as often as one of them told it."""
    by_worker = [_events_alike(listed) for listed in lists]
    alike = dict.fromkeys(key for told in by_worker for key in told)
    events = [
        event
        for key in alike
        for event in max((told.get(key, []) for told in by_worker), key=_how_often_and_early)
    ]
    return sorted(events, key=lambda event: int(event["at_ms"]))[-EVENTS_MAX:]


def _events_alike(listed: Sequence[Picture]) -> Mapping[str, list[Picture]]:
    """Events by what they say."""
    alike: defaultdict[str, list[Picture]] = defaultdict(list)
    for event in listed:
        alike[json.dumps([event["name"], event["details"]], sort_keys=True)].append(event)
    return alike


def _how_often_and_early(events: Sequence[Picture]) -> tuple[int, int]:
    return len(events), -int(events[0]["at_ms"]) if events else 0


def _each_once(lists: Sequence[Sequence[Picture]]) -> list[Picture]:
    """All look at the same destination."""
    seen: list[Picture] = []
    for one in (one for listed in lists for one in listed):
        if one not in seen:
            seen.append(one)
    return seen


def _latest_look(told: Sequence[Mapping[str, Picture]]) -> dict[str, Picture]:
    """By partition; it may have been several workers', one after the other."""
    found: dict[str, Picture] = {}
    for source, left in (item for one in told for item in one.items()):
        if source not in found or left["looked_ms"] > found[source]["looked_ms"]:
            found[source] = left
    return found


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
    "error": told_once,
    "reason": _any,
    "failures": _largest,
    "started_ms": _largest,
    "pause": _any,
    "halts": _longest,
    "switch": _any,
    "control_problem": told_once,
    "reconcile_problem": told_once,
    "delivery_problem": told_once,
    "group_generation": _largest,
    "counts": added_up,
    "events": _latest_events,
    "drift": _each_once,
    "audit": merge_audits,
    "groups": merge_groups,
    "ledger": merge_ledgers,
    "link": merge_ways,
    "timing": merge_timings,
    "left": _latest_look,
}
