"""Where leader epochs end, also those that no record of the log was written in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from broker.storage.log_config import LogConfig
from tests.replication.test_flush_through import executor, lead, led
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, build

__all__ = ["executor"]


def test_an_epoch_without_records_ended_where_the_next_began(executor: ThreadPoolExecutor) -> None:
    replica = led(memory_place(), executor, LogConfig())
    lead(replica.machine, 2)
    assert replica.epoch_end(1) == (1, 0)
    for value in (b"one", b"two"):
        replica.append(build([value]), acks=1, now_ms=NOW_MS)
    lead(replica.machine, 5)
    assert [replica.epoch_end(epoch) for epoch in (2, 3, 4, 5)] == [(2, 2), (2, 2), (2, 2), (5, 2)]
    assert replica.epoch_end(6) == (-1, -1)
    replica.append(build([b"three"]), acks=1, now_ms=NOW_MS)
    assert [replica.epoch_end(epoch) for epoch in (2, 3, 4, 5)] == [(2, 2), (2, 2), (2, 2), (5, 3)]
    assert replica.epoch_end(6) == (-1, -1)
