"""What the workers of one route tell of its ledger, and of the groups that they carry over, as one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrormaker.workers.problems import told_once
from mirrormaker.workers.totals import added_up

Picture = Mapping[str, Any]


def merge_ledgers(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Each reads all of it, and writes the pages of its own partitions."""
    return {
        "problem": told_once(each["problem"] for each in pictures),
        "lanes": max(each["lanes"] for each in pictures),
        "pages": max(each["pages"] for each in pictures),
        "pending_pages": sum(each["pending_pages"] for each in pictures),
        "pages_given_up": sum(each["pages_given_up"] for each in pictures),
    }


def merge_groups(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Each carries positions of its own partitions."""
    return {
        "problem": told_once(each["problem"] for each in pictures),
        "moved": sum(each["moved"] for each in pictures),
        "groups": added_up([each["groups"] for each in pictures]),
    }
