"""Commands of the `broker` program, run to their end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.programs import run_program

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    lines: list[str]
    errors: str

    @property
    def json(self) -> Any:
        return json.loads("\n".join(self.lines))


def broker(*arguments: str, stdin: str = "") -> Outcome:
    """Run one command to its end. Raises TimeoutExpired when it does not end in time."""
    done = run_program("broker", *arguments, stdin=stdin, seconds=TIMEOUT_SECONDS)
    return Outcome(code=done.returncode, lines=done.stdout.splitlines(), errors=done.stderr)


def done(*arguments: str, stdin: str = "") -> Outcome:
    """Run a command that has to succeed without a word on stderr."""
    outcome = broker(*arguments, stdin=stdin)
    assert outcome.code == 0, outcome.errors
    assert outcome.errors == ""
    return outcome
