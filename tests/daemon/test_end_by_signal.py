"""A signal ends a process whose event loop or thread hangs, and lets any other end by itself."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PATIENCE_SECONDS = 60.0
PROGRAM = """\
import asyncio, sys, threading, time
from broker.telemetry import configure_logging
from mirrormaker.end_by_signal import end_by_signal

def hang(has_begun=lambda: None):
    print("hangs", flush=True)
    has_begun()
    while True:
        time.sleep(0.01)

async def main(hangs):
    stopping = asyncio.Event()
    end_by_signal(stopping.set, end_seconds=60.0 if hangs in ("never", "until a line comes") else 0.2)
    if hangs == "at once":
        hang()
    if hangs == "in a thread":
        begun = threading.Event()  # two threads that print at a time share lines
        asyncio.get_running_loop().run_in_executor(None, hang, begun.set)
        await asyncio.to_thread(begun.wait)
    print("runs", flush=True)
    await stopping.wait()
    if hangs == "as it ends":
        hang()
    print("ended", flush=True)

configure_logging("info")
asyncio.run(main(sys.argv[1]))
if sys.argv[1] == "until a line comes":
    print("behind", flush=True)
    sys.stdin.readline()
    print("over", flush=True)
"""


def ended(hangs: str, number: signal.Signals) -> tuple[int, list[str], str]:
    """Exit code, what was said once the signal was sent, and what was logged."""
    command = [sys.executable, "-c", PROGRAM, hangs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # it may have read more by then, which `communicate` would not give
        process.send_signal(number)
        said, logged = process.stdout.read(), process.stderr.read()
        return process.wait(PATIENCE_SECONDS), said.splitlines(), logged


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_that_turns_ends_by_itself(number: signal.Signals) -> None:
    assert ended("never", number) == (0, ["ended"], "")


@pytest.mark.parametrize(
    ("hangs", "said"),
    [("at once", []), ("as it ends", ["hangs"]), ("in a thread", ["runs", "ended"])],
    ids=["before", "after the signal", "behind all that was to be done"],
)
def test_one_that_hangs_is_ended_and_says_where(hangs: str, said: list[str]) -> None:
    code, told, logged = ended(hangs, signal.SIGTERM)
    assert (code, told) == (128 + signal.SIGTERM, said)
    assert "ended_amid_a_hang" in logged
    assert "<string>:9 in hang" in logged
    assert "_worker" not in logged


def test_a_second_signal_ends_nothing_that_comes_behind_the_loop() -> None:
    command = [sys.executable, "-c", PROGRAM, "until a line comes"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert [process.stdout.readline() for _ in range(2)] == ["ended\n", "behind\n"]
        process.send_signal(signal.SIGINT)
        said, logged = process.communicate("go on\n", timeout=PATIENCE_SECONDS)
    assert (process.returncode, said, logged) == (0, "over\n", "")
