"""What both programs print before any command, and where that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_SECONDS = 60
PRINTED = [
    (program, arguments)
    for program, command in (("broker", "topics"), ("mirrormaker", "plan"))
    for arguments in (["--help"], ["--version"], [command, "--help"])
]


def run(
    program: str, arguments: list[str], stdout: int, unbuffered: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", f"{program}.cli", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("program", "arguments"), PRINTED)
def test_help_and_version_that_cannot_be_written_are_told(
    program: str, arguments: list[str], unbuffered: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run(program, arguments, full.fileno(), unbuffered)
    told = f"{program}: cannot write the output: No space left on device\n".encode()
    assert (ended.returncode, ended.stderr) == (1, told)


@pytest.mark.parametrize(("program", "arguments"), PRINTED)
def test_otherwise_they_are_printed(program: str, arguments: list[str]) -> None:
    ended = run(program, arguments, subprocess.PIPE, "")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert program.encode() in ended.stdout
