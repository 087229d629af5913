"""Since when records of partitions can have waited that came while a route looked at its source."""

from __future__ import annotations

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.timing.appearances import Appearances
from tests.storage.samples import ManualClock

LOOK_MS = 5_000
YEAR_MS = 365 * 86_400_000


class Watched:
    """A source that is looked at every five seconds."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.appearances = Appearances(self.clock)

    def look(self, *, cluster: str = "jfk", **counts: int) -> int:
        """So many partitions are found; when that was."""
        self.clock.advance(LOOK_MS)
        self.appearances.look_begins()
        asked_ms = self.clock.monotonic_ms()
        self.clock.advance(10)
        self.appearances.looked(cluster, counts)
        return asked_ms

    def waits_since_ms(self, topic: str, number: int = 0, position: int = 0) -> int | None:
        """Of the first record, which says that it is a year old."""
        now_ms = self.clock.monotonic_ms()
        history = self.appearances.begin_history(TopicPartition(topic, number), position)
        history.observe(100, now_ms)
        return history.arrived_ms(position, now_ms - YEAR_MS)


def test_a_record_of_a_new_partition_came_after_the_last_look_that_did_not_find_it() -> None:
    watched = Watched()
    first = watched.look(orders=1)
    assert watched.waits_since_ms("planes") == first
    second = watched.look(orders=3, planes=2)
    assert [watched.waits_since_ms("orders", number) for number in (1, 2)] == [first] * 2
    assert watched.waits_since_ms("planes", 1) == first
    assert watched.waits_since_ms("planes", 2) == second
    watched.look(orders=3, planes=2)
    assert watched.waits_since_ms("planes", 1) == first


@pytest.mark.parametrize("position", [0, 40])
def test_a_record_says_how_old_it_is_where_its_partition_was_found_or_copied_before(position: int) -> None:
    watched = Watched()
    assert watched.waits_since_ms("orders", 0, position) == watched.clock.monotonic_ms() - YEAR_MS
    watched.look(orders=1)
    watched.look()  # it is deleted, or may not be seen
    watched.look(orders=1, planes=1)
    year_ago_ms = watched.clock.monotonic_ms() - YEAR_MS
    assert watched.waits_since_ms("orders", 0, position) == year_ago_ms
    assert (watched.waits_since_ms("planes", 0, position) == year_ago_ms) is (position > 0)


def test_what_another_cluster_has_was_there_before() -> None:
    watched = Watched()
    watched.look(orders=1)
    watched.look(cluster="lga", planes=1)
    assert watched.waits_since_ms("planes") == watched.clock.monotonic_ms() - YEAR_MS
