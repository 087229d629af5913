"""What a daemon tells the process of a run, and what becomes of it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from broker.child_process import describe_exit
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.reconcile.topology_file import TopologyText

_WELL = (RunState.SUCCEEDED.value, RunState.STOPPED.value)
_SAID_NOTHING = "the process of the run ended before it said what the run came to"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One run of one pipeline."""

    source: TopologyText
    """The topology in force."""
    pipeline: str
    trigger: str
    attempt: int
    due_ms: int | None
    log_level: str
    held_until_ms: float | None
    """See `tenure`."""

    def encode(self) -> bytes:
        """One JSON object, in one line without its end."""
        told = {
            "text": self.source.text,
            "file": str(self.source.file),
            "pipeline": self.pipeline,
            "trigger": self.trigger,
            "attempt": self.attempt,
            "due_ms": self.due_ms,
            "log_level": self.log_level,
            "held_until_ms": self.held_until_ms,
        }
        return json.dumps(told).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a process ended."""

    code: int
    record: dict[str, Any]
    """The record of its run; only a `problem` when it could not begin."""

    @property
    def problem(self) -> str | None:
        """Why the run failed; None when it did not, however its process ended thereafter."""
        if self.code == 0 or self.record.get("state") in _WELL:
            return None
        return str(self.record.get("problem") or f"the process of the run {describe_exit(self.code)}")

    @property
    def is_cut_off(self) -> bool:
        """Whether the process ended before it had said what the run came to."""
        return self.code != 0 and "run" not in self.record


def decode_end(code: int, output: bytes) -> RunEnd:
    """Out of what the process has printed; its last line is the record. One that ended with 0 and says
    nothing was ended by what it ran.
    """
    lines = output.splitlines()
    try:
        record = json.loads(lines[-1]) if lines else {}
    except ValueError:
        record = {}
    if not isinstance(record, dict):
        record = {}
    if code == 0 and record.get("state") not in _WELL:
        return RunEnd(code=1, record={"problem": _SAID_NOTHING})
    return RunEnd(code=code, record=record)
