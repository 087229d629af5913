"""`mirrormaker audit` of a topology with one route, as tests ask it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.daemon.conftest import PATIENCE_SECONDS, mirrormaker


def audit(file: Path, *options: str, seconds: float = PATIENCE_SECONDS) -> tuple[int, dict[str, Any]]:
    """Exit code, and what is said of the only route."""
    done = mirrormaker("audit", str(file), "--output", "json", *options, seconds=seconds)
    assert done.returncode in (0, 1, 2), done.stderr
    assert done.stdout, done.stderr
    (route,) = json.loads(done.stdout)["routes"]
    return done.returncode, route


def found(route: dict[str, Any]) -> list[tuple[str, int | None, int | None, int]]:
    """Its differences: kind, offsets of both sides, how many."""
    return [each for partition in route["partitions"] for each in found_in(partition)]


def found_in(partition: Mapping[str, Any]) -> list[tuple[str, int | None, int | None, int]]:
    """The same of one partition."""
    return [(each["kind"], each["offset"], each["to_offset"], each["count"]) for each in partition["found"]]
