"""Partitions that are to be begun, and who is to begin them."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.flow.attempts import RETRY_MAX_MS, RETRY_MS, Attempts

FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)


def test_a_partition_is_left_to_the_last_attempt_until_it_is_begun_or_given_up() -> None:
    attempts = Attempts()
    before = attempts.make([FIRST, SECOND])
    now = attempts.make([SECOND])
    assert (before.left, now.left) == ({FIRST}, {SECOND})
    attempts.end([SECOND, SECOND])
    again = attempts.make([SECOND])
    assert (before.left, now.left, again.left) == ({FIRST}, frozenset(), {SECOND})
    attempts.end([FIRST])
    assert before.left == frozenset()


def test_attempts_wait_longer_each_time() -> None:
    waits = []
    for wait_ms in (0, RETRY_MS, 4_000):
        attempt = Attempts().make([FIRST], wait_ms)
        for _ in range(5):
            waits.append(attempt.wait_ms)
            attempt.wait_longer()
    assert waits[:5] == [0, 500, 1_000, 2_000, 4_000]
    assert waits[5:10] == [500, 1_000, 2_000, 4_000, RETRY_MAX_MS]
    assert waits[10:] == [4_000, *[RETRY_MAX_MS] * 4]
