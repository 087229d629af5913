"""Fetches of committed records wait for the last stable offset, and count the bytes that it passes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from broker.records.control import Marker, MarkerType
from broker.replication.replica import Replica
from broker.replication.waits import Isolation, wait_for_bytes
from broker.storage.log_config import LogConfig
from tests.replication.test_flush_through import executor, led
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, build

__all__ = ["executor"]

LONG_MS = 60_000
COMMIT = Marker(type=MarkerType.COMMIT, coordinator_epoch=0)


def append(replica: Replica, size: int, *, producer: int = -1) -> int:
    """Append one batch, transactional if a producer is named; its size in bytes."""
    fields = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    batch = build([b"x" * size], producer=fields, transactional=producer >= 0)
    replica.append(batch, acks=1, now_ms=NOW_MS)
    return len(batch)


def test_open_transactions_hold_bytes_back_and_their_markers_release_them(
    executor: ThreadPoolExecutor,
) -> None:
    async def scenario() -> None:
        replica = led(memory_place(), executor, LogConfig(segment_bytes=600, index_interval_bytes=0))
        plain = append(replica, 10)
        held = append(replica, 300, producer=7) + append(replica, 300, producer=8) + append(replica, 300)
        needed = held + 20
        waiting = asyncio.create_task(wait_for_bytes([replica], needed, LONG_MS, isolation=Isolation.STABLE))
        await asyncio.sleep(0)
        assert replica.last_stable_offset == 1
        append(replica, 500)
        replica.append_marker(COMMIT, 8, 0, now_ms=NOW_MS)
        await asyncio.sleep(0)
        assert not waiting.done()
        replica.append_marker(COMMIT, 7, 0, now_ms=NOW_MS)
        await waiting
        assert not replica.stable_waits
        assert replica.log.size_between(0, 1) == plain
        assert replica.log.size_between(1, 4) == held

    asyncio.run(scenario())


def test_a_replica_that_stops_answers_those_who_wait_for_committed_records(
    executor: ThreadPoolExecutor,
) -> None:
    async def scenario() -> None:
        replica = led(memory_place(), executor, LogConfig())
        waiting = asyncio.create_task(wait_for_bytes([replica], 1, LONG_MS, isolation=Isolation.STABLE))
        await asyncio.sleep(0)
        replica.take_offline()
        await waiting

    asyncio.run(scenario())
