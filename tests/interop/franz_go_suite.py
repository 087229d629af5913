"""The tests that franz-go's client brings, run against any brokers, and its own broker in memory, kfake."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker.types import HostPort
from tests.interop.apache import HERE
from tests.interop.outcome import Outcome

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = 20_000
"""Of each of the longer tests."""
TIMEOUT_SECONDS = 900
_VERDICT = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


def run(program: Path, brokers: Sequence[HostPort], *, without: Collection[str] = ()) -> Outcome:
    """Run the tests but for those `without`, whose time-outs are long. `program` is `go test -c PACKAGE`.

    Topics get a replica on every broker, up to three.
    """
    arguments = [f"-test.skip=^({'|'.join(without)})$"] if without else []
    return _run(program, brokers, arguments, {})


def run_with_breaking_connections(program: Path, brokers: Sequence[HostPort]) -> Outcome:
    """Run the tests that take part in the suite's mode of chaos: each connection of their clients breaks
    within 1.5 s, and still every record has to come through the group once.
    """
    return _run(program, brokers, ["-test.run=^TestGroupETL$"], {"KGO_TEST_CHAOS": "1"})


def _run(
    program: Path, brokers: Sequence[HostPort], arguments: Sequence[str], mode: Mapping[str, str]
) -> Outcome:
    finished = subprocess.run(
        [str(program), "-test.v", f"-test.timeout={TIMEOUT_SECONDS}s", *arguments],
        cwd=_sources(),
        env={
            **os.environ,
            "KGO_SEEDS": ",".join(map(str, brokers)),
            "KGO_TEST_RF": str(min(3, len(brokers))),
            "KGO_TEST_RECORDS": str(RECORDS),
            **mode,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS + 60,
        check=False,
    )
    outcome = Outcome()
    for verdict, name in _VERDICT.findall(finished.stdout):
        match verdict:
            case "PASS":
                outcome.passed.add(name)
            case "FAIL":
                outcome.failed[name] = finished.stdout
            case _:
                outcome.skipped.add(name)
    if finished.returncode and not outcome.failed:
        outcome.failed["the program"] = finished.stdout + finished.stderr
    return outcome


def _sources() -> str:
    """Where the package lies: some of its tests read it."""
    command = ["go", "list", "-f", "{{.Dir}}", PACKAGE]
    found = subprocess.run(command, cwd=HERE / "go", capture_output=True, text=True, check=True)
    return found.stdout.strip()


@contextmanager
def kfake(program: Path) -> Iterator[HostPort]:
    """A broker of kfake until the end of the `with`; `program` is built of tests/interop/go/kfake."""
    command = [str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield HostPort.parse(process.stdout.readline().strip())
