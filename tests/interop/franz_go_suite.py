"""The tests that franz-go's client brings, run against one broker, and its own broker in memory, kfake."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
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


def run(program: Path, broker: HostPort, *, without: Iterable[str]) -> Outcome:
    """Run the tests but for those `without`, whose time-outs are long. `program` is `go test -c PACKAGE`."""
    leaving_out = f"^({'|'.join(without)})$"
    finished = subprocess.run(
        [str(program), "-test.v", f"-test.skip={leaving_out}", f"-test.timeout={TIMEOUT_SECONDS}s"],
        cwd=_sources(),
        env={
            **os.environ,
            "KGO_SEEDS": str(broker),
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
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
