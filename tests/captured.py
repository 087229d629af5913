"""Data directories of Apache Kafka that were captured under tests/golden; see tests/interop/capture.py."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Self

GOLDEN = Path(__file__).parent / "golden"
GROUP = "readers"
"""The consumer group that committed offsets."""


class State(Enum):
    """How the broker had ended when its directory was copied."""

    CLEAN = "clean"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One captured directory. `served` is what its broker served before it ended, and its `znodes`; `dump`
    what Kafka's DumpLogSegments printed.
    """

    root: Path
    state: State
    served: dict[str, Any]
    dump: str

    @classmethod
    def open(cls, directory: Path, state: State) -> Self:
        """The capture whose files are in `directory`."""
        return cls(
            root=directory / state.value,
            state=state,
            served=json.loads((directory / f"{state.value}.json").read_text()),
            dump=(directory / f"{state.value}.dump").read_text(),
        )


def captured_versions() -> list[str]:
    """The versions of Kafka that there are captures of."""
    return sorted(
        path.name.removesuffix(".tar.xz").removeprefix("kafka-") for path in GOLDEN.glob("*.tar.xz")
    )


def unpack(version: str, state: State, directory: Path) -> Captured:
    """A fresh copy of one captured directory."""
    with tarfile.open(GOLDEN / f"kafka-{version}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return Captured.open(directory, state)
