"""What is kept of a pipeline in the `data_dir`: `pipelines/NAME/` with

runs.jsonl   what has been said of its runs (`run_record`), one line each; a line is written at once and
             flushed to the disk, and one that a crash cut off is passed over; the first says what those
             runs had that are not remembered any more (`loaded_hours`)
lock         held by flock while the pipeline runs anywhere on this machine: runs that race wait outside
waiting      held, shared, by those that wait for it: a run that has no end makes room for them
schema       the schema that was inferred, kept from the first run on
checkpoint/  what Spark notes of what it has loaded, unless the pipeline says another place
quarantine/  records that were not of the format, unless the pipeline says another place
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from broker.errors import ConfigurationError
from mirrormaker.durable_files import write_whole
from mirrormaker.folder_lock import FolderLock, at_once
from mirrormaker.pipelines.loaded_hours import PastRuns, decode_past, encode_past, with_past
from mirrormaker.pipelines.run_record import (
    GarbledRecordError,
    RunRecord,
    RunState,
    decode_record,
    encode_record,
    ended_runs,
    fold_records,
)
from mirrormaker.topology.model import PipelineName

RUNS_KEPT = 1000
"""Runs that are remembered of each pipeline."""
_LINES_MAX = 5 * RUNS_KEPT
_BYTES_MAX = 32 << 20
"""Lines and bytes after which what is outdated is left out."""
_NOTES_BETWEEN_LOOKS = 500
"""Of a run that has no end."""


class PipelineBusyError(ConfigurationError):
    """The pipeline runs already."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__([f"pipeline {name!r} runs already: {folder / 'lock'} is held"])


class PipelineFolder:
    """See the module."""

    def __init__(self, data_dir: Path, name: PipelineName) -> None:
        self.path = data_dir / "pipelines" / name
        self._name = name
        self._runs = self.path / "runs.jsonl"
        self._lock = FolderLock(self.path)
        self._schema = self.path / "schema"
        self._noted = 0

    @property
    def checkpoint(self) -> Path:
        """Where Spark notes what has been loaded."""
        return self.path / "checkpoint"

    @property
    def quarantine(self) -> Path:
        """Where records go that are not of the format."""
        return self.path / "quarantine"

    def locked(self, may_wait: Callable[[], bool] = at_once) -> AbstractContextManager[None]:
        """Be the one that runs it, once no other does; waited for that is while `may_wait` says so. Raises
        PipelineBusyError, ConfigurationError.
        """
        return self._lock.held(PipelineBusyError(self._name, self.path), may_wait)

    def is_wanted(self) -> bool:
        """Whether somebody waits until the run is over that is under way; for that run."""
        return self._lock.is_wanted()

    def is_locked(self) -> bool:
        """Whether it runs somewhere on this machine."""
        return self._lock.is_held()

    def note(self, record: RunRecord) -> None:
        """Keep what is said of a run; by the one that holds the lock. Raises OSError."""
        line = encode_record(record) + "\n"
        descriptor = os.open(self._runs, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            end = os.fstat(descriptor).st_size
            if end and os.pread(descriptor, 1, end - 1) != b"\n":
                line = "\n" + line  # behind what a crash cut off
            _write_all(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._noted += 1
        if record.state.is_over or self._noted % _NOTES_BETWEEN_LOOKS == 0:
            self._shorten()

    def end_cut_off(self, problem: str, ended_ms: int | None = None) -> list[RunRecord]:
        """Keep that runs which have not said their end failed for `problem`, at `ended_ms` or when they were
        last heard of; returns them. By the one that holds the lock: they say nothing more. Raises OSError.
        """
        ended = ended_runs(self.runs(), problem, ended_ms)
        for record in ended:
            self.note(record)
        return ended

    def runs(self) -> list[RunRecord]:
        """What was said last of each run, the oldest first."""
        return fold_records(self._read())

    def past_runs(self) -> PastRuns:
        """What those had that are not remembered any more."""
        for line in self._lines()[:1]:
            try:
                return decode_past(line)
            except GarbledRecordError:
                continue  # nothing has been forgotten yet
        return PastRuns()

    def last_run(self) -> RunRecord | None:
        """The run that was begun last, None before the first."""
        runs = self.runs()
        return runs[-1] if runs else None

    def has_not_succeeded(self, run: str) -> bool:
        """Whether a run is known, and is not known to have succeeded."""
        return any(each.run == run and each.state is not RunState.SUCCEEDED for each in self.runs())

    def kept_schema(self) -> str | None:
        """The schema that was inferred; None before that."""
        try:
            return self._schema.read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    def keep_schema(self, schema: str) -> None:
        """Have it for all further runs. Raises OSError."""
        write_whole(self._schema, schema + "\n")

    def _lines(self) -> list[str]:
        try:
            return self._runs.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []

    def _read(self) -> list[RunRecord]:
        found = []
        for line in self._lines():
            try:
                found.append(decode_record(line))
            except GarbledRecordError:
                continue  # cut off by a crash, or of runs that are past
        return found

    def _shorten(self) -> None:
        records = self._read()
        if len(records) > _LINES_MAX or self._runs.stat().st_size > _BYTES_MAX:
            runs = fold_records(records)
            past = with_past(self.past_runs(), runs[:-RUNS_KEPT])
            lines = [encode_past(past), *map(encode_record, runs[-RUNS_KEPT:])]
            write_whole(self._runs, "".join(f"{line}\n" for line in lines))


def _write_all(descriptor: int, data: bytes) -> None:
    """On a disk that is nearly full a write takes a part; the next one says why. Raises OSError."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
