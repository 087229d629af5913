"""Acknowledged means on the disk: what an answer waits for when the settings ask for a flush."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from typing import cast

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.replication.partition import Assignment, Partition
from broker.replication.replica import Replica
from broker.storage.free_space import FreeSpace
from broker.storage.log_config import LogConfig
from broker.storage.memory_disk import MemoryDisk, MemoryFile
from broker.types import BrokerId, LeaderEpoch
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, DiskAt, build, contents

EVERY_RECORD = LogConfig(flush_messages=1, segment_bytes=400, index_interval_bytes=0)
LOCAL = BrokerId(1)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def led(place: DiskAt, executor: ThreadPoolExecutor, config: LogConfig = EVERY_RECORD) -> Replica:
    """A replica on `place` that this node leads alone."""
    log = place.log(config)
    machine = Partition(PARTITION, LOCAL, log_end_offset=log.log_end_offset)
    lead(machine, 0)
    space = FreeSpace(str(place.path), lambda: place.disk.space(place.path), minimum=0)
    return Replica(log, machine, executor, free_space=space)


def lead(machine: Partition, epoch: int) -> None:
    alone = Assignment(
        leader=LOCAL, leader_epoch=LeaderEpoch(epoch), isr=(LOCAL,), replicas=(LOCAL,), partition_epoch=epoch
    )
    machine.lead(alone, now_ms=0)


async def acknowledged(replica: Replica, batch: bytearray, acks: int = 1) -> int:
    """Append as a produce request does; the offset after the batch, once it is acknowledged."""
    appended = replica.append(batch, acks=acks, now_ms=NOW_MS)
    if replica.flush_is_due:
        await replica.flush_through(appended.last_offset + 1)
    return appended.last_offset + 1


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_survives_a_loss_of_power(
    executor: ThreadPoolExecutor, seed: int, acks: int
) -> None:
    place, random = memory_place(), Random(seed)
    place.disk.make_directory(place.path / str(PARTITION))
    place.disk.sync_directory(place.path)  # as whoever creates a log does
    replica, answered = led(place, executor), []

    async def produce(value: bytes) -> None:
        end = await acknowledged(replica, build([value]), acks)
        answered.append((end - 1, value))

    async def produce_some() -> None:
        for burst in range(random.randint(1, 6)):
            await asyncio.gather(*[produce(b"%d-%d" % (burst, n)) for n in range(random.randint(1, 8))])

        replica.append(build([b"not acknowledged"]), acks=acks, now_ms=NOW_MS)

    asyncio.run(produce_some())
    cast(MemoryDisk, place.disk).crash(random if seed else None)
    assert contents(place.log(EVERY_RECORD))[: len(answered)] == sorted(answered)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """The first sync tells that it has begun, and waits to be let go."""
    begun, released = Event(), Event()
    sync = MemoryFile.sync

    def wait_and_sync(file: MemoryFile) -> None:
        if not begun.is_set():
            begun.set()
            assert released.wait(30)
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", wait_and_sync)
    return begun, released


async def begin(replica: Replica, batch: bytearray, held: tuple[Event, Event]) -> asyncio.Task[int]:
    task = asyncio.create_task(acknowledged(replica, batch))
    await asyncio.to_thread(held[0].wait, 30)
    return task


def test_a_flush_that_began_before_an_append_does_not_answer_it(
    executor: ThreadPoolExecutor, held: tuple[Event, Event]
) -> None:
    replica = led(memory_place(), executor)

    async def scenario() -> list[int]:
        first = await begin(replica, build([b"a"]), held)
        later = [asyncio.create_task(acknowledged(replica, build([value]))) for value in (b"b", b"c", b"d")]
        await asyncio.sleep(0)
        held[1].set()
        await first
        assert replica.log.flushed_end >= 1
        ends = await asyncio.gather(*later)
        assert replica.log.flushed_end == 4
        return ends

    assert asyncio.run(scenario()) == [2, 3, 4]


def test_appends_that_wait_together_share_a_flush(
    executor: ThreadPoolExecutor, held: tuple[Event, Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = led(memory_place(), executor, LogConfig(flush_messages=1))
    flushes = []
    flush = type(replica.log).flush
    monkeypatch.setattr(type(replica.log), "flush", lambda log: (flushes.append(1), flush(log))[1])

    async def scenario() -> None:
        first = await begin(replica, build([b"a"]), held)
        later = [asyncio.create_task(acknowledged(replica, build([b"b"]))) for _ in range(20)]
        await asyncio.sleep(0)
        held[1].set()
        await asyncio.gather(first, *later)

    asyncio.run(scenario())
    assert len(flushes) == 2


def test_a_repeated_batch_is_answered_once_the_first_one_is_on_the_disk(
    executor: ThreadPoolExecutor, held: tuple[Event, Event]
) -> None:
    replica = led(memory_place(), executor)
    batch = build([b"once"], producer=(7, 0, 0))

    async def scenario() -> None:
        first = await begin(replica, bytearray(batch), held)
        repeated = asyncio.create_task(acknowledged(replica, bytearray(batch)))
        await asyncio.sleep(0)
        assert not repeated.done()
        assert replica.log.flushed_end == 0
        held[1].set()
        assert await repeated == await first == 1

    asyncio.run(scenario())
    assert replica.log.log_end_offset == 1


def test_what_is_cut_while_it_is_flushed_is_not_acknowledged(
    executor: ThreadPoolExecutor, held: tuple[Event, Event]
) -> None:
    replica = led(memory_place(), executor)

    async def scenario() -> None:
        waiting = await begin(replica, build([b"a"]), held)
        replica.log.truncate_to(0)
        replica.machine.truncated(0)
        lead(replica.machine, 2)
        replica.append(build([b"another"]), acks=1, now_ms=NOW_MS)
        held[1].set()
        with pytest.raises(ProtocolError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_a_log_that_is_closed_acknowledges_nothing_more(
    executor: ThreadPoolExecutor, held: tuple[Event, Event]
) -> None:
    replica = led(memory_place(), executor)

    async def scenario() -> None:
        first = await begin(replica, build([b"a"]), held)
        second = asyncio.create_task(acknowledged(replica, build([b"b"])))
        await asyncio.sleep(0)
        replica.log.abandon()
        held[1].set()
        await first
        with pytest.raises(ProtocolError):
            await second

    asyncio.run(scenario())


def test_a_failed_sync_refuses_everybody_who_waits(executor: ThreadPoolExecutor) -> None:
    place = memory_place()
    replica = led(place, executor)
    cast(MemoryDisk, place.disk).syncs_fail = True

    async def scenario() -> list[int | BaseException]:
        waiting = [acknowledged(replica, build([b"%d" % n])) for n in range(3)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    for answer in asyncio.run(scenario()):
        assert isinstance(answer, ProtocolError)
        assert answer.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_with_more_than_one_record_a_flush_comes_at_so_many(executor: ThreadPoolExecutor) -> None:
    replica = led(memory_place(), executor, LogConfig(flush_messages=3))

    async def flushed_after_each() -> list[int]:
        ends = []
        for _ in range(7):
            await acknowledged(replica, build([b"x"]))
            ends.append(replica.log.flushed_end)
        return ends

    assert asyncio.run(flushed_after_each()) == [0, 0, 3, 3, 3, 6, 6]


def test_names_that_one_flush_has_taken_are_synced_before_another_answers(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = led(memory_place(), executor)
    begun, released = Event(), Event()
    sync_directory = MemoryDisk.sync_directory

    def wait_and_sync(disk: MemoryDisk, path: Path) -> None:
        if not begun.is_set():
            begun.set()
            assert released.wait(30)
        sync_directory(disk, path)

    monkeypatch.setattr(MemoryDisk, "sync_directory", wait_and_sync)
    replica.log.append(build([b"a"]), 0, now_ms=NOW_MS)
    first = executor.submit(replica.log.flush)
    assert begun.wait(30)
    replica.log.append(build([b"b"]), 0, now_ms=NOW_MS)
    second = executor.submit(replica.log.flush)
    assert replica.log.flushed_end == 0
    assert not second.done()
    released.set()
    assert first.result(30) == 1
    assert second.result(30) == 2


def test_nobody_sees_what_has_to_be_on_the_disk_before_it_is_there(
    executor: ThreadPoolExecutor, held: tuple[Event, Event]
) -> None:
    replica = led(memory_place(), executor)

    async def scenario() -> None:
        produce = await begin(replica, build([b"a"]), held)
        assert replica.log.log_end_offset == 1
        assert replica.high_watermark == 0
        committed = replica.acknowledgement(1, -1)
        assert committed is not None
        held[1].set()
        await committed
        await produce
        assert replica.high_watermark == 1

    asyncio.run(scenario())


def test_a_new_leader_flushes_what_it_copied_before_it_counts_it(executor: ThreadPoolExecutor) -> None:
    replica = led(memory_place(), executor)
    replica.log.append(build([b"copied"]), 0, now_ms=NOW_MS)

    async def scenario() -> None:
        replica.begin_flush()
        replica.machine.appended(1)
        assert replica.high_watermark == 0
        committed = replica.acknowledgement(1, -1)
        assert committed is not None
        await committed
        assert replica.log.flushed_end == replica.high_watermark == 1

    asyncio.run(scenario())
