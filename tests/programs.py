"""Commands of the programs, each a process of its own with streams of its own.

They are forked off a process that has imported the programs (`fork_server`): the imports are most of what a
command costs, and half of what a node or a daemon does that serves a test for some seconds.
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
import time
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


class Program:
    """A command that runs, from any thread; as much of a `subprocess.Popen` as its users need."""

    def __init__(self, program: str, arguments: Sequence[str], streams: tuple[int, int, int]) -> None:
        """Begin, with these as stdin, stdout and stderr."""
        global _server
        with _starting:
            if _server is None:
                _server = _Server()
        self.args = [program, *arguments]
        self.returncode: int | None = None
        self._answers, theirs = socket.socketpair()
        self._told = b""
        self._asking = threading.Lock()
        with theirs:
            _server.ask(program, arguments, [*streams, theirs.fileno()])
        self.pid = int(self._line(None))

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended. Raises TimeoutExpired when that is not so in time (seconds)."""
        if not self._asking.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        try:
            if self.returncode is None:
                self.returncode = int(self._line(timeout))
                self._answers.close()
            return self.returncode
        finally:
            self._asking.release()

    def send_signal(self, sig: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _line(self, timeout: float | None) -> bytes:
        """The next that is told of it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._told:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            self._answers.settimeout(left)
            try:
                data = self._answers.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            assert data, "the process that commands are forked off has ended"
            self._told += data
        line, _, self._told = self._told.partition(b"\n")
        return line


def start_program(program: str, *arguments: str, output: int) -> Program:
    """Start one command of `broker` or `mirrormaker`; all that it says goes to the descriptor `output`."""
    with Path(os.devnull).open("rb") as nothing:
        return Program(program, arguments, (nothing.fileno(), output, output))


def run_program(
    program: str, *arguments: str, stdin: str = "", seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run one command of `broker` or `mirrormaker` to its end, from any thread. Raises TimeoutExpired when
    it does not end in time: then it is killed.
    """
    reading, writing = os.pipe()
    writer = threading.Thread(target=_write, args=(os.fdopen(writing, "wb"), stdin.encode()))
    writer.start()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        streams = (reading, output.fileno(), errors.fileno())
        running = Program(program, arguments, streams)
        os.close(reading)  # the command's alone, so that who writes to it hears when it is gone
        try:
            code = running.wait(seconds)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        writer.join()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(running.args, code, output.read(), errors.read())


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:
        pipe.write(data)
