"""Commands that a signal or a full disk ends before they are done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from broker.embedded import EmbeddedCluster
from tests.node.commands import done

TIMEOUT_SECONDS = 60
INTERRUPTED = 128 + signal.SIGINT


@pytest.fixture
def bootstrap(node: EmbeddedCluster) -> str:
    return f"--bootstrap-server={node.bootstrap[0]}"


@contextmanager
def command(*arguments: str, stdout: IO[bytes] | int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A command under way, with an input that is open and silent."""
    with subprocess.Popen(
        [sys.executable, "-m", "broker.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def values(bootstrap: str, topic: str, count: int) -> list[str]:
    reading = ("--from-beginning", "--max-messages", str(count))
    return done("consume", topic, *reading, bootstrap).lines


def test_produce_ends_though_its_input_stays_silent(bootstrap: str, topic: str) -> None:
    done("topics", "create", topic, bootstrap)
    with command("produce", topic, bootstrap) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"one\ntwo\n")
        producing.stdin.flush()
        assert values(bootstrap, topic, 2) == ["one", "two"]
        producing.send_signal(signal.SIGINT)
        assert producing.wait(TIMEOUT_SECONDS) == INTERRUPTED


def test_consume_is_ended_by_a_signal_and_goes_on_behind_what_it_printed(bootstrap: str, topic: str) -> None:
    done("produce", topic, bootstrap, stdin="one\ntwo\n")
    reading = ("consume", topic, "--group", topic, "--from-beginning", bootstrap)
    with command(*reading) as consuming:
        assert consuming.stdout is not None
        assert [consuming.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        consuming.send_signal(signal.SIGTERM)
        assert consuming.wait(TIMEOUT_SECONDS) == 0
    done("produce", topic, bootstrap, stdin="three\n")
    assert done(*reading, "--max-messages", "1").lines == ["three"]


def test_consume_that_lacks_records_it_was_to_print_was_not_done(bootstrap: str, topic: str) -> None:
    done("produce", topic, bootstrap, stdin="one\n")
    with command("consume", topic, "--from-beginning", "--max-messages", "2", bootstrap) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"one\n"
        consuming.send_signal(signal.SIGINT)
        assert consuming.wait(TIMEOUT_SECONDS) == INTERRUPTED


@pytest.mark.parametrize("what", ["topics list", "topics list --output json", "consume"])
def test_a_full_disk_under_the_output_is_told(what: str, bootstrap: str, topic: str) -> None:
    done("produce", topic, bootstrap, stdin="one\n")
    arguments = ["consume", topic, "--from-beginning"] if what == "consume" else what.split()
    with (
        Path("/dev/full").open("wb") as full,
        command(*arguments, bootstrap, stdout=full) as running,
    ):
        _, errors = running.communicate(timeout=TIMEOUT_SECONDS)
    assert (running.returncode, errors) == (1, b"broker: cannot write the output: No space left on device\n")


def test_nothing_is_said_when_the_reader_has_gone(bootstrap: str, topic: str) -> None:
    done("produce", topic, bootstrap, stdin="one\n")
    reading, writing = os.pipe()
    os.close(reading)
    with (
        os.fdopen(writing, "wb") as gone,
        command("topics", "list", bootstrap, stdout=gone) as running,
    ):
        _, errors = running.communicate(timeout=TIMEOUT_SECONDS)
    assert (running.returncode, errors) == (1, b"")


@pytest.mark.parametrize(
    ("text", "records"),
    [("", []), ("a", ["a"]), ("a\n", ["a"]), ("\n\na", ["", "", "a"])],
)
def test_each_line_is_a_record(bootstrap: str, topic: str, text: str, records: list[str]) -> None:
    done("topics", "create", topic, bootstrap)
    done("produce", topic, bootstrap, stdin=text)
    done("produce", topic, bootstrap, stdin="the end")
    assert values(bootstrap, topic, len(records) + 1) == [*records, "the end"]


def test_lines_longer_than_a_read_are_whole(bootstrap: str, topic: str) -> None:
    lines = [character * 90_000 for character in "abcdefgh"]
    done("produce", topic, bootstrap, stdin="\n".join(lines))
    assert values(bootstrap, topic, len(lines)) == lines


def test_an_input_that_cannot_be_read_is_told(bootstrap: str, topic: str, tmp_path: Path) -> None:
    done("topics", "create", topic, bootstrap)
    unreadable = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        producing = subprocess.run(
            [sys.executable, "-m", "broker.cli", "produce", topic, bootstrap],
            stdin=unreadable,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        os.close(unreadable)
    assert (producing.returncode, producing.stderr) == (
        1,
        b"broker: cannot read the input: Bad file descriptor\n",
    )
