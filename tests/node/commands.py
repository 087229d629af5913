"""Commands of the `broker` program, run to their end: each is a process of its own with streams of its own.

They are forked off a process that has imported the program (`fork_server`): the imports are most of what a
command costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TIMEOUT_SECONDS = 60
_PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    lines: list[str]
    errors: str

    @property
    def json(self) -> Any:
        return json.loads("\n".join(self.lines))


class _Server:
    """The process that commands are forked off, started with the first of them."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair()
        self._asking.settimeout(TIMEOUT_SECONDS)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "tests.node.fork_server", str(number)]
            self._process = subprocess.Popen(
                command, cwd=_PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number]
            )

    def run(self, arguments: Sequence[str], stdin: int, stdout: int, stderr: int) -> int:
        """Run one command with these streams; returns its exit code."""
        line = json.dumps(arguments).encode()
        socket.send_fds(self._asking, [line], [stdin, stdout, stderr])
        os.close(stdin)  # the child's alone, so that who writes to it hears when the child is gone
        answer = self._asking.recv(16)
        assert answer, "the process that commands are forked off is gone"
        return int(answer)

    def end(self) -> None:
        """Have no more commands; a command that still runs is killed."""
        self._asking.close()
        self._process.kill()
        self._process.wait()


_server: _Server | None = None


def end_server() -> None:
    """End the process that commands are forked off, if there is one; the next command starts another."""
    global _server
    if _server is not None:
        _server.end()
        _server = None


def broker(*arguments: str, stdin: str = "") -> Outcome:
    """Run one command to its end. Raises TimeoutError when it does not end in time."""
    global _server
    if _server is None:
        _server = _Server()
    reading, writing = os.pipe()
    writer = threading.Thread(target=_write, args=(os.fdopen(writing, "wb"), stdin.encode()))
    writer.start()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            code = _server.run(arguments, reading, output.fileno(), errors.fileno())
        except TimeoutError:
            end_server()
            raise
        finally:
            writer.join()
        output.seek(0)
        errors.seek(0)
        return Outcome(code=code, lines=output.read().splitlines(), errors=errors.read())


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)


def done(*arguments: str, stdin: str = "") -> Outcome:
    """Run a command that has to succeed without a word on stderr."""
    outcome = broker(*arguments, stdin=stdin)
    assert outcome.code == 0, outcome.errors
    assert outcome.errors == ""
    return outcome
