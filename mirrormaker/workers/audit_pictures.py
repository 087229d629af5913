"""What the audits of several workers of one route found, as one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrormaker.workers.problems import told_once
from mirrormaker.workers.totals import added_up

Picture = Mapping[str, Any]


def merge_audits(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Each worker audits partitions of its own."""
    times = [each["at_ms"] for each in pictures]
    return {
        "window_ms": pictures[0]["window_ms"],
        "audits": min(each["audits"] for each in pictures),
        "at_ms": None if None in times else min(times),
        "problem": told_once(each["problem"] for each in pictures),
        "records": sum(each["records"] for each in pictures),
        "equal": sum(each["equal"] for each in pictures),
        "outcomes": added_up([each["outcomes"] for each in pictures]),
        "differences": added_up([each["differences"] for each in pictures]),
        "found": [one for each in pictures for one in each["found"]],
    }
