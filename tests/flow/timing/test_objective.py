"""Promises about lag: kept, broken, kept again."""

from __future__ import annotations

from mirrormaker.flow.timing.objective import QUIET_MS, Change, LagObjective


def test_a_breach_begins_at_once_and_ends_after_a_while_of_keeping() -> None:
    objective = LagObjective(10)
    assert objective.look(9.9, 0) is None
    assert objective.look(10.5, 1_000) is Change.BREACHED
    assert objective.look(30.0, 2_000) is None
    assert objective.look(3.0, 3_000) is None
    assert objective.look(11.0, 4_000) is None, "it swings: one breach"
    assert objective.look(3.0, 5_000) is None
    assert objective.look(3.0, 4_999 + QUIET_MS) is None
    assert objective.look(3.0, 5_000 + QUIET_MS) is Change.RECOVERED
    assert objective.look(3.0, 6_000 + QUIET_MS) is None
    assert (objective.breaches, objective.worst_seconds) == (1, 30.0)
    assert objective.breached_ms == 4_000 + QUIET_MS


def test_the_worst_is_that_of_the_last_breach() -> None:
    objective = LagObjective(10)
    objective.look(50.0, 0)
    objective.look(1.0, 1_000)
    objective.look(1.0, 1_000 + QUIET_MS)
    objective.look(12.0, 20_000)
    assert (objective.breaches, objective.worst_seconds) == (2, 12.0)


def test_a_lag_that_nobody_knows_changes_nothing() -> None:
    objective = LagObjective(10)
    assert objective.look(None, 0) is None
    assert objective.describe(None, 0)["state"] == "unknown"  # type: ignore[index]
    objective.look(11.0, 1_000)
    assert objective.look(None, 2_000) is None
    assert objective.is_breached
    assert objective.describe(11.0, 500_000) == {
        "lag_seconds": 10,
        "state": "breached",
        "since_ms": 501_000,
        "lag": 11.0,
        "worst": 11.0,
        "breaches": 1,
        "breached_ms": 1_000,
    }


def test_a_promise_that_is_taken_back_is_not_broken_any_more() -> None:
    objective = LagObjective(10)
    objective.look(11.0, 0)
    objective.lag_seconds = None
    assert objective.look(11.0, 1_000) is Change.RECOVERED
    assert objective.look(11.0, 2_000) is None
    told = objective.describe(11.0, 0)
    assert told is not None, "its breaches count as before when it is made again"
    assert (told["lag_seconds"], told["state"], told["since_ms"], told["breaches"]) == (None, "none", None, 1)
    assert LagObjective(None).describe(11.0, 0) is None
