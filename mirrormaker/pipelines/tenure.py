"""How long the process of a run may go on: until a time that its daemon puts off for as long as it certainly
holds the pipeline. A daemon that stands still puts nothing off, and the process ends itself before another
daemon can hold the pipeline, whatever it is doing.

Times are milliseconds on the clock of `time.monotonic`, which all processes of a machine have in common.
Owned by two threads of that process.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from threading import Condition, Thread
from typing import BinaryIO

PROBLEM = "its daemon does not say any more that it holds the pipeline: another may run it"
_WAIT_SECONDS_MAX = 3600.0


def encode_term(until_ms: float | None) -> bytes:
    """A line that says until when; None: without an end."""
    return json.dumps(until_ms).encode() + b"\n"


class Tenure:
    """See the module."""

    def __init__(self, until_ms: float | None, terms: BinaryIO, told: int) -> None:
        """`terms`: lines of `encode_term`, as they come. `told`: the descriptor that gets the problem, as a
        record of the run has it, before the process ends.
        """
        self._until_ms = _read(until_ms)
        self._terms = terms
        self._told = told
        self._changed = Condition()

    def begin(self) -> None:
        """Go by it from now on."""
        for target in (self._follow, self._watch):
            Thread(target=target, name="tenure", daemon=True).start()

    def _follow(self) -> None:
        for line in self._terms:
            with self._changed:
                self._until_ms = _read(json.loads(line))
                self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while (left := self._until_ms / 1000 - time.monotonic()) > 0:
                self._changed.wait(min(left, _WAIT_SECONDS_MAX))
        os.write(self._told, json.dumps({"problem": PROBLEM}).encode() + b"\n")
        os.kill(os.getpid(), signal.SIGKILL)


def _read(until_ms: float | None) -> float:
    return math.inf if until_ms is None else until_ms
