"""What is in quarantine of a batch that comes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrormaker.pipelines.quarantine import Quarantine
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.topology.model import PipelineName, PipelineSpec


class Kept:
    """A table that stands for its rows, by the notes of batches."""

    def __init__(self, *where: object) -> None:
        self.batches: dict[int, set[str]] = {}

    def holds(self, key: str, number: int) -> bool:
        return number in self.batches

    def append(self, key: str, number: int, frame: Rows) -> int:
        return len(self.batches.setdefault(number, set(frame)))


class Rows(set[str]):
    """A frame."""

    def isEmpty(self) -> bool:
        return not self


def test_a_batch_that_comes_again_adds_what_another_schema_cannot_decode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrormaker.pipelines.quarantine.Table", Kept)
    pipeline = PipelineSpec(name=PipelineName("p"))
    quarantine: Any = Quarantine(None, pipeline, PipelineFolder(Path(), pipeline.name), "g")  # type: ignore[arg-type]
    added: list[Rows] = []

    def add_lacking(malformed: Rows) -> int:
        added.append(malformed)
        return len(malformed - {"a"})

    monkeypatch.setattr(quarantine, "add_lacking", add_lacking)
    assert quarantine.append(0, Rows()) == 0
    assert quarantine.append(1, Rows("a")) == 1
    assert not added
    assert quarantine.append(1, Rows("ab")) == 2
    assert added == [Rows("ab")]
