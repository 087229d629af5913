"""Child processes that end with their parent.

Every child is told by the kernel to die with its parent (PR_SET_PDEATHSIG, set by a small launcher that then
execs the program), so that nothing is left behind when the parent is killed hard.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from broker.errors import BrokerError

_LAUNCHER = """\
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs before each child: `1` is PR_SET_PDEATHSIG; the check covers a parent that died before the call."""

_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 4000


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """What runs `command`, and ends with SIGKILL when the thread that started it does. The first word of
    `command` is a path.
    """
    return [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(os.getpid()), *command]


def describe_exit(code: int) -> str:
    """How a process ended, by its return code: the number of a signal is below 0."""
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class EmbeddedError(BrokerError):
    """A child process could not be started or died early; the message carries the end of its log."""


class Process(Protocol):
    """What it takes of a `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class ChildProcess:
    """A child that dies with its parent, its output in a file."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    def start(cls, name: str, command: Sequence[str], log: Path) -> ChildProcess:
        """Run `command` with its output appended to `log`. Raises EmbeddedError when it cannot be run."""
        try:
            with log.open("ab") as output:
                return cls(name, _popen_in_own_thread(dying_with_parent(command), output.fileno()), log)
        except OSError as error:
            raise EmbeddedError(f"cannot start {name}: {error}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_exited(self) -> bool:
        return self._process.poll() is not None

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_ms: int) -> None:
        """Return when `is_ready`. Raises EmbeddedError when the process dies before that, or time is out."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not is_ready():
            if self.has_exited():
                raise EmbeddedError(
                    f"{self.name} exited with {self._process.returncode} while starting:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{self.name} was not ready within {timeout_ms} ms:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the process is gone."""
        self._process.send_signal(number)

    def stop(self, *, timeout_ms: int) -> int:
        """SIGTERM, and SIGKILL when the process is still there after `timeout_ms`; returns the exit code."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_ms / 1000)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL alone: the process runs nothing more; returns the exit code."""
        self.signal(signal.SIGKILL)
        return self._process.wait()

    def log_tail(self) -> str:
        """The end of its output."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()


def _popen_in_own_thread(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as it does.

    The kernel sends the parent-death signal when the thread that started the child ends, not only when the
    whole process does.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def run() -> None:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()

    threading.Thread(target=run, name="child-keeper", daemon=True).start()
    return started.result()
