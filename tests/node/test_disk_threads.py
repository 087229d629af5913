"""Threads whose number changes while they work."""

from __future__ import annotations

from threading import Barrier, Event

from broker.disk_threads import DiskThreads

DEADLINE_SECONDS = 30


def test_work_begun_before_a_resize_ends_and_more_runs_at_once_after_it() -> None:
    with DiskThreads(1) as threads:
        go_on = Event()
        before = threads.submit(go_on.wait, DEADLINE_SECONDS)
        threads.resize(3)
        assert threads.count == 3
        meeting = Barrier(3)
        meetings = [threads.submit(meeting.wait, DEADLINE_SECONDS) for _ in range(3)]
        assert sorted(each.result(DEADLINE_SECONDS) for each in meetings) == [0, 1, 2]
        go_on.set()
        assert before.result(DEADLINE_SECONDS)
