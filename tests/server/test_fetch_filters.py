"""Filters of fetches: what is left in the answers, and how it gets there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from broker.records.record_filter import RecordFilter
from broker.server.fetch_filters import FetchFilters
from broker.server.old_formats import StoredAnswer
from broker.storage.log_config import LogConfig
from broker.wire.messages.fetch import PartitionData
from tests.node.raw_client import values_of
from tests.storage.conftest import memory_place
from tests.storage.samples import append

WANTED = RecordFilter.parse('value starts with "w"')


class CountingThreads(ThreadPoolExecutor):
    """Threads that count what they are asked to do."""

    turns = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.turns += 1
        return super().submit(fn, *args, **kwargs)


def stored_answer(number: int, *values: bytes) -> StoredAnswer:
    """One partition's answer, with a batch of each value."""
    log = memory_place().log(LogConfig())
    for value in values:
        append(log, value)
    records = log.read(0, max_bytes=1 << 20, up_to=log.log_end_offset)
    return StoredAnswer(number, "t", PartitionData(partition_index=number), records, 1 << 20)


def test_partitions_of_an_answer_take_one_turn_of_a_thread_together() -> None:
    stored = [stored_answer(number, b"wanted %d" % number, b"other") for number in range(100)]
    filters = FetchFilters()

    async def run() -> int:
        threads = CountingThreads(1)
        asyncio.get_running_loop().set_default_executor(threads)
        await filters.apply(stored, WANTED, asyncio.Semaphore(1), batch_size_max=1 << 20)
        return threads.turns

    assert asyncio.run(run()) == 1
    assert [values_of(each.answer.records) for each in stored] == [[b"wanted %d" % at] for at in range(100)]
    assert {each.answer.filtered_to for each in stored} == {2}
    kept = sum(len(each.answer.records or b"") for each in stored)
    assert filters.dropped_bytes == sum(each.answer.filtered_bytes for each in stored)
    assert filters.looked_at_bytes == filters.dropped_bytes + kept
