from __future__ import annotations

from datetime import datetime

import pytest

from broker.storage.cleaning_schedule import CleaningSchedule


def at(hour: int, minute: int, *, day: int = 2, second: int = 30) -> int:
    """Local time on a day of June 2025; the first was a Sunday."""
    return int(datetime(2025, 6, day, hour, minute, second).timestamp() * 1000)


@pytest.mark.parametrize(
    ("expression", "allowed", "refused"),
    [
        ("", [at(0, 0), at(12, 30)], []),
        ("* 1-5 * * *", [at(1, 0), at(5, 59), at(3, 30, second=0)], [at(0, 59), at(6, 0)]),
        ("0-29 * * * *", [at(7, 0), at(7, 29)], [at(7, 30), at(7, 59)]),
        ("* * * * sat,sun", [at(7, 0, day=1), at(7, 0, day=7)], [at(7, 0, day=2)]),
        ("  */10 * * * *  ", [at(7, 20)], [at(7, 21)]),
    ],
)
def test_the_minutes_that_the_expression_names_are_allowed(
    expression: str, allowed: list[int], refused: list[int]
) -> None:
    schedule = CleaningSchedule(expression)
    assert [schedule.allows(time) for time in allowed] == [True] * len(allowed)
    assert [schedule.allows(time) for time in refused] == [False] * len(refused)


@pytest.mark.parametrize(
    "expression", ["daily", "* * * *", "0 * * * * *", "61 * * * *", "* 25 * * *", "0 0 30 2 *"]
)
def test_what_is_no_cron_expression_is_refused_with_its_text(expression: str) -> None:
    with pytest.raises(ValueError, match=expression.replace("*", r"\*")):
        CleaningSchedule(expression)
