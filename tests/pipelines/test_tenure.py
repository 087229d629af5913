"""How long the process of a run may go on, as a real process that is told so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mirrormaker.pipelines.tenure import PROBLEM, encode_term
from tests.conftest import until

PROCESS = """\
import json, os, sys, time
from mirrormaker.pipelines.tenure import Tenure
print("ready", flush=True)
first = json.loads(sys.stdin.buffer.readline())
Tenure(first, sys.stdin.buffer, 1).begin()
while first is not None and time.monotonic() * 1000 <= first:
    time.sleep(0.01)
os.write(1, b"alive\\n")  # at once: the record comes to the same pipe
while True:
    time.sleep(1)
"""
DAY_MS = 86_400_000


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its first term."""
    command = [sys.executable, "-c", PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        try:
            assert heard(running) == "ready"
            yield running
        finally:
            running.kill()


def tell(running: subprocess.Popen[bytes], until_ms: float | None) -> None:
    assert running.stdin is not None
    running.stdin.write(encode_term(until_ms))
    running.stdin.flush()


def heard(running: subprocess.Popen[bytes]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().decode().strip()


def now_ms() -> float:
    return time.monotonic() * 1000


def assert_ends(running: subprocess.Popen[bytes]) -> None:
    assert running.stdout is not None
    told = [line for line in running.stdout.read().splitlines() if line != b"alive"]
    assert [json.loads(line) for line in told] == [{"problem": PROBLEM}], "as its record"
    assert running.wait() == -signal.SIGKILL


def test_a_process_that_hears_nothing_more_ends_itself_when_its_time_is_over() -> None:
    with process() as running:
        tell(running, now_ms() + 500)
        assert_ends(running)


@pytest.mark.parametrize("first_ms", [None, 4_000])
def test_it_goes_on_for_as_long_as_it_is_told_to(first_ms: int | None) -> None:
    with process() as running:
        tell(running, None if first_ms is None else now_ms() + first_ms)
        tell(running, now_ms() + DAY_MS)
        assert heard(running) == "alive", "beyond its first term"
        tell(running, None)
        tell(running, now_ms())
        assert_ends(running)


def test_one_that_stood_still_itself_ends_when_it_goes_on() -> None:
    with process() as running:
        until_ms = now_ms() + 500
        running.send_signal(signal.SIGSTOP)
        tell(running, until_ms)
        until(lambda: now_ms() > until_ms)
        running.send_signal(signal.SIGCONT)
        assert_ends(running)
