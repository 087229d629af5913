"""Which partitions are behind, so that the limit for old records is theirs."""

from __future__ import annotations

from mirrormaker.flow.bandwidth.old_records import OldRecords
from mirrormaker.flow.lag import EndHistory
from tests.flow.timing.partitions import ORDERS, partition_at

YEAR_MS = 365 * 24 * 3_600_000


def rule(history: EndHistory) -> OldRecords:
    """For a route that copies within ten seconds, at a clock where 1970 was two years ago."""
    rule = OldRecords({ORDERS: history})
    rule.lag_ms, rule.wall_shift_ms = 10_000, 2 * YEAR_MS
    return rule


def test_what_was_there_before_the_process_began_is_old_by_its_timestamps() -> None:
    history, partition = EndHistory(), partition_at(100, 500)
    history.observe(500, 1_000)
    partition.last_timestamp = YEAR_MS
    assert rule(history).is_behind(partition, 1_500)
    partition.last_timestamp = 2 * YEAR_MS
    assert not rule(history).is_behind(partition, 1_500)


def test_last_years_records_that_arrive_just_now_are_not_old() -> None:
    history, partition = EndHistory(), partition_at(100, 500)
    history.observe(100, 1_000)
    history.observe(500, 2_000, asked_ms=1_900)
    partition.last_timestamp = YEAR_MS
    assert not rule(history).is_behind(partition, 2_500)


def test_what_has_waited_for_longer_than_the_objective_is_old_whatever_its_timestamps_say() -> None:
    history, partition = EndHistory(), partition_at(100, 500)
    history.observe(100, 1_000)
    history.observe(500, 2_000, asked_ms=1_900)
    partition.last_timestamp = 2 * YEAR_MS + 12_000
    assert rule(history).is_behind(partition, 12_001)
