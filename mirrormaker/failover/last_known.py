"""Ends of source partitions of failover groups, kept by the daemon: what a rehearsal knows of a source that
answers no more. A file of the daemon's folder, `ends.json`, rewritten as they are seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.errors import ConfigurationError
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import Topology

FILE_NAME = "ends.json"

Ends = dict[str, dict[str, dict[str, Any]]]
"""By route and partition: `end`, `at_ms` when the source said so, `copied_to`, `bytes_per_offset`,
`waiting_since_ms`. Nothing before `copied_to` was to be copied then: a ledger tells where copies are, and
nothing of what came back, or was left out, behind the last of them.
"""


class LastKnownEnds:
    """Kept below a topology's `data_dir`."""

    def __init__(self, directory: StateDirectory) -> None:
        self._file = directory.path / FILE_NAME
        self._ends = _read(self._file)

    def keep(self, topology: Topology, routes: Mapping[str, Mapping[str, Any]], at_ms: int) -> None:
        """Take in what the daemon tells of its routes (`Daemon.describe`). Raises OSError."""
        watched = {route.name for route in topology.routes if route.failover_group is not None}
        is_news = False
        for name in watched & routes.keys():
            for partition, told in routes[name].get("partitions", {}).items():
                if told.get("source_problem") is None and told.get("source_end", -1) >= 0:
                    self._ends.setdefault(name, {})[partition] = {
                        "end": told["source_end"],
                        "at_ms": at_ms,
                        "copied_to": min(told["acknowledged"], told["committed"]),
                        "bytes_per_offset": told.get("bytes_per_offset"),
                        "waiting_since_ms": told.get("waiting_since_ms"),
                    }
                    is_news = True
        if is_news:
            aside = self._file.with_suffix(".tmp")
            aside.write_text(json.dumps(self._ends, separators=(",", ":")), encoding="utf-8")
            aside.replace(self._file)


def read_last_known(topology: Topology) -> Ends:
    """What the daemon on the topology's `data_dir` kept; nothing where none has run."""
    try:
        return _read(StateDirectory(topology.data_dir).path / FILE_NAME)
    except ConfigurationError:
        return {}


def read_obstacles(topology: Topology) -> dict[str, dict[str, str]]:
    """By route: topics of its source that the daemon there did not copy when it looked last, and why."""
    try:
        told = StateDirectory(topology.data_dir).read() or {}
    except ConfigurationError:
        return {}
    return {name: route.get("obstacles", {}) for name, route in told.get("routes", {}).items()}


def _read(file: Path) -> Ends:
    try:
        ends = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return ends if isinstance(ends, dict) else {}
