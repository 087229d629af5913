"""Commands of the programs, run to their end: each is a process of its own with streams of its own.

They are forked off a process that has imported the programs (`fork_server`): the imports are most of what a
command costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_PROJECT = Path(__file__).parents[1]


class _Server:
    """The process that commands are forked off, started with the first of them."""

    def __init__(self) -> None:
        self._asking, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "tests.fork_server", str(number)]
            self._process = subprocess.Popen(
                command, cwd=_PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number]
            )

    def ask(self, program: str, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
        """Have it run a command with these as stdin, stdout and stderr, and the last to answer to."""
        request = {
            "program": program,
            "arguments": arguments,
            "directory": str(Path.cwd()),
            "environment": dict(os.environ),
        }
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            sent = socket.send_fds(self._asking, [line], descriptors)
            self._asking.sendall(line[sent:])

    def end(self) -> None:
        """Have no more commands."""
        self._asking.close()
        self._process.kill()
        self._process.wait()


_server: _Server | None = None
_starting = threading.Lock()


def end_server() -> None:
    """End the process that commands are forked off, if there is one; the next command starts another."""
    global _server
    if _server is not None:
        _server.end()
        _server = None


def run_program(
    program: str, *arguments: str, stdin: str = "", seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run one command of `broker` or `mirrormaker` to its end, from any thread. Raises TimeoutExpired when
    it does not end in time: then it is killed.
    """
    global _server
    with _starting:
        if _server is None:
            _server = _Server()
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    writer = threading.Thread(target=_write, args=(os.fdopen(writing, "wb"), stdin.encode()))
    writer.start()
    with ours, tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with theirs:
            _server.ask(program, arguments, [reading, output.fileno(), errors.fileno(), theirs.fileno()])
        os.close(reading)  # the command's alone, so that who writes to it hears when it is gone
        code = _await_end([program, *arguments], ours, seconds)
        writer.join()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess([program, *arguments], code, output.read(), errors.read())


def _await_end(command: Sequence[str], answers: socket.socket, seconds: float) -> int:
    with answers.makefile() as lines:
        child = int(lines.readline())
        answers.settimeout(seconds)
        try:
            return int(lines.readline())
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, seconds) from None


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)
