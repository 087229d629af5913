"""Seeds that run with every test run. `make chaos` runs 10,000."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.sim.simulation import run_seed, with_transactions

SEEDS = 200
TRANSACTION_SEEDS = 40
AT_A_TIME = 5
LONG_FROM, LONG_TRANSACTIONS_FROM = 5, 5
"""Seeds from here on run with the long tests."""


def _chunks(seeds: int, long_from: int) -> list[Any]:
    """The first seed of each test."""
    return [
        pytest.param(first, marks=pytest.mark.long) if first >= long_from else first
        for first in range(0, seeds, AT_A_TIME)
    ]


@pytest.mark.parametrize("first", _chunks(SEEDS, LONG_FROM))
def test_a_cluster_keeps_its_promises_whatever_goes_wrong(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + AT_A_TIME)]
    assert not [str(outcome) for outcome in outcomes if outcome.failure]
    assert sum(outcome.batches for outcome in outcomes) > 50


@pytest.mark.parametrize("first", _chunks(TRANSACTION_SEEDS, LONG_TRANSACTIONS_FROM))
def test_transactions_are_all_or_nothing_whatever_goes_wrong(first: int) -> None:
    outcomes = [run_seed(seed, scenario=with_transactions(seed)) for seed in range(first, first + AT_A_TIME)]
    assert not [str(outcome) for outcome in outcomes if outcome.failure]


def test_a_machine_that_loses_power_after_its_node_ended_in_order_may_be_the_last_one_in_sync() -> None:
    outcome = run_seed(167, scenario=with_transactions(167))
    assert not outcome.failure


def test_a_machine_is_not_the_last_with_all_records_while_another_counts_as_in_sync_by_what_it_had() -> None:
    assert not run_seed(7472).failure


def test_a_node_whose_registration_was_not_answered_goes_by_its_new_broker_epoch() -> None:
    outcome = run_seed(308, scenario=with_transactions(308))
    assert not outcome.failure


def test_a_seed_is_the_same_run_every_time() -> None:
    first, again = run_seed(3), run_seed(3)
    assert first == again
    assert run_seed(4).digest != first.digest


def test_a_run_that_is_looked_at_is_the_same_run() -> None:
    trace = io.StringIO()
    assert run_seed(5, trace=trace) == run_seed(5)
    assert "all faults end" in trace.getvalue()


def test_a_seed_is_the_same_run_in_every_process() -> None:
    outputs = {_output(hash_seed) for hash_seed in ("0", "1")}
    assert len(outputs) == 1
    assert "seed 7: well" in outputs.pop()


def _output(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.sim", "--seed", "7"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
