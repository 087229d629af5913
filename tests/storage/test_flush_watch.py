"""Which logs are looked at for a flush: those that asked for it, until they need it no more."""

from __future__ import annotations

from broker.storage.flush_watch import FlushWatch
from broker.storage.log_config import LogConfig
from tests.storage.samples import DiskAt, append

ROLLING = LogConfig(segment_bytes=80)
"""One batch to a segment."""


def test_an_idle_log_is_not_watched(place: DiskAt) -> None:
    watch = FlushWatch()
    log = place.log(LogConfig(), watch=watch)
    append(log, b"one", b"two")
    assert not watch.due()
    assert watch.count == 0


def test_a_log_that_rolled_is_watched_until_it_was_flushed(place: DiskAt) -> None:
    watch = FlushWatch()
    log = place.log(ROLLING, watch=watch)
    append(log, b"one")
    append(log, b"two")
    assert watch.due() == [log.files]
    log.flush()
    assert not watch.due()
    assert watch.count == 0


def test_a_log_whose_settings_ask_for_flushes_stays_watched_until_they_do_not(place: DiskAt) -> None:
    watch = FlushWatch()
    log = place.log(LogConfig(), watch=watch)
    log.update_config(LogConfig(flush_messages=2))
    append(log, b"one")
    assert not watch.due()
    append(log, b"two")
    assert watch.due() == [log.files]
    log.flush()
    assert not watch.due()
    assert watch.count == 1
    log.update_config(LogConfig())
    assert not watch.due()
    assert watch.count == 0


def test_a_closed_log_is_forgotten(place: DiskAt) -> None:
    watch = FlushWatch()
    log = place.log(LogConfig(flush_ms=1), watch=watch)
    assert watch.count == 1
    log.abandon()
    assert watch.count == 0
