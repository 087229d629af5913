"""Many seeds of the simulated cluster, and bugs planted into it that it must find."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.child_process import describe_exit
from tests.sim.planted import PLANTED, planted
from tests.sim.simulation import run_seed

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "10000"))
AT_A_TIME = 250
SECONDS_PER_SEED = 3
"""More than enough, on a machine that has other things to do."""


@pytest.mark.timeout(SEEDS * SECONDS_PER_SEED)
def test_no_seed_breaks_a_promise() -> None:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        reports = list(threads.map(_run_from, range(0, SEEDS, AT_A_TIME)))
    assert not "".join(reports)


@pytest.mark.timeout(SEEDS * SECONDS_PER_SEED)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug):
        assert any(run_seed(seed).failure for seed in range(SEEDS))


def _run_from(first: int) -> str:
    """What was told of the seeds that failed, or how the process was ended before it told anything."""
    count = min(AT_A_TIME, SEEDS - first)
    command = [sys.executable, "-m", "tests.sim", "--first", str(first), "--count", str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return ""
    return f"seeds from {first}: {describe_exit(ended.returncode)}\n{ended.stdout}{ended.stderr}"
