"""What the audits of several workers of one route found, as one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Picture = Mapping[str, Any]


def merge_audits(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Each worker audits partitions of its own."""
    problems = [each["problem"] for each in pictures if each["problem"] is not None]
    times = [each["at_ms"] for each in pictures]
    return {
        "window_ms": pictures[0]["window_ms"],
        "audits": min(each["audits"] for each in pictures),
        "at_ms": None if None in times else min(times),
        "problem": "; ".join(dict.fromkeys(problems)) or None,
        "records": sum(each["records"] for each in pictures),
        "equal": sum(each["equal"] for each in pictures),
        "outcomes": _added_up([each["outcomes"] for each in pictures]),
        "differences": _added_up([each["differences"] for each in pictures]),
        "found": [one for each in pictures for one in each["found"]],
    }


def _added_up(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)
