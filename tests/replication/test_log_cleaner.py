"""The cleaner threads: which log comes next, and how passes end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from broker.records.batch import Codec
from broker.replication.log_cleaner import DEBT_SECONDS_MAX, CleanerSettings, LogCleaner
from broker.replication.replicas import Replicas
from broker.storage.cleaning_schedule import CleaningSchedule
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.log_directory import LogDirectory
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, TopicPartition
from tests.storage.compaction_samples import COMPACTED, put, seen, table
from tests.storage.samples import ManualClock

SETTINGS = CleanerSettings(backoff_ms=1, map_bytes=1 << 20, buffer_bytes=1024)


@dataclass
class HostedLog:
    """A replica as the cleaner sees one."""

    log: Log

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def last_stable_offset(self) -> int:
        return self.log.log_end_offset


class Hosted:
    """The replicas of a node with one log directory in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.directory = LogDirectory.open(
            self.disk, Path("/data"), ManualClock(), broker_id=BrokerId(1), cluster_id="jfk"
        )
        self.directory.load(lambda partition: COMPACTED)
        self.replicas: dict[TopicPartition, HostedLog] = {}

    @property
    def directories(self) -> Any:
        @dataclass
        class Live:
            live: Mapping[Path, LogDirectory]

        return Live({self.directory.path: self.directory})

    def get(self, topic: str, partition: int) -> HostedLog | None:
        return self.replicas.get(TopicPartition(topic, partition))

    def log(self, topic: str, *, dirty: int, clean: int = 0, config: LogConfig = COMPACTED) -> Log:
        """A log of so many records below and above its first dirty offset."""
        partition = TopicPartition(topic, 0)
        log = self.directory.create_log(partition, None, config)
        for number in range(clean + dirty):
            put(log, (b"k%d" % (number % 3), b"%d" % number))
            if number + 1 in (clean, clean + dirty):
                log.roll()
        if clean:
            log.compacted_to(clean)
        self.replicas[partition] = HostedLog(log)
        return log


def run_until(
    hosted: Hosted,
    condition: Callable[[LogCleaner], bool],
    settings: CleanerSettings = SETTINGS,
    schedule: str = "",
) -> list[Any]:
    """Run the cleaner until a condition holds; what it logged."""

    async def main() -> None:
        cleaner = LogCleaner(
            cast(Replicas, hosted), settings, schedule=CleaningSchedule(schedule), clock=ManualClock()
        )
        running = asyncio.create_task(cleaner.run())
        async with asyncio.timeout(30):
            while not condition(cleaner) and not running.done():
                await asyncio.wait([running], timeout=0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with capture_logs() as logs:
        asyncio.run(main())
    return logs


def is_clean(log: Log) -> bool:
    return log.compacted_end == log.segments[-1].base_offset


def test_the_dirtiest_log_comes_first() -> None:
    hosted = Hosted()
    logs = [
        hosted.log("a-little", clean=40, dirty=10),
        hosted.log("mostly", clean=10, dirty=30),
        hosted.log("half", clean=20, dirty=20),
    ]
    events = run_until(hosted, lambda cleaner: all(map(is_clean, logs)) and not cleaner._under_way)
    order = [event["partition"] for event in events if event["event"] == "log_cleaned"]
    assert order == ["mostly-0", "half-0", "a-little-0"]


def test_what_a_pass_did_is_logged() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=60)
    size = log.size
    (event,) = [
        event
        for event in run_until(hosted, lambda cleaner: is_clean(log) and not cleaner._under_way)
        if event["event"] == "log_cleaned"
    ]
    assert (event["partition"], event["start_offset"], event["end_offset"]) == ("state-0", 0, 60)
    assert (event["bytes_before"], event["bytes_after"]) == (size, log.size)
    assert event["keys"] == 3
    assert "duration_ms" in event
    assert [record.offset for record in seen(log)] == [57, 58, 59]


def test_logs_that_are_not_dirty_enough_or_not_compacted_are_left_alone() -> None:
    hosted = Hosted()
    config = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    little = hosted.log("a-little", clean=40, dirty=10, config=config)
    deleted = hosted.log("deleted", dirty=30, config=replace(COMPACTED, cleanup_policy=frozenset({"delete"})))
    due = hosted.log("due", dirty=30, config=config)
    run_until(hosted, lambda _: is_clean(due))
    assert little.compacted_end == 40
    assert deleted.compacted_end is None


def test_a_damaged_log_is_told_of_once_and_does_not_keep_others_waiting() -> None:
    hosted = Hosted()
    damaged, sound = hosted.log("damaged", dirty=60), hosted.log("sound", clean=10, dirty=20)
    with damaged.segments[1].log as file:
        file.pwrite(b"?" * 10, 70)
    before = seen(sound)
    passes = 0

    def more(cleaner: LogCleaner) -> bool:
        nonlocal passes
        if is_clean(sound):
            passes += 1
            for number in range(10):
                put(sound, (b"k0", b"again%d" % number))
            sound.roll()
        return passes == 3 and bool(cleaner.uncleanable)

    events = run_until(hosted, more)
    assert [event["partition"] for event in events if event["event"] == "log_uncleanable"] == ["damaged-0"]
    assert len(seen(sound)) < len(before) + 30


def test_batches_that_are_not_opened_are_told_of_and_the_pass_goes_on() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=10, config=replace(COMPACTED, segment_bytes=1 << 20))
    bomb = put(log, (b"k0", bytes(10_000)), codec=Codec.GZIP)
    log.roll()
    events = run_until(
        hosted,
        lambda cleaner: is_clean(log) and not cleaner._under_way,
        replace(SETTINGS, unpacked_max=1_000),
    )
    assert [event["event"] for event in events] == ["batches_not_compacted", "log_cleaned"]
    assert (events[0]["partition"], events[0]["count"], events[0]["first_offset"]) == ("state-0", 1, bomb)
    assert bomb in [record.offset for record in seen(log)]


def test_a_full_disk_is_tried_again_later_and_costs_nothing() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=60)
    log.flush()
    hosted.directory.checkpoints.store_compaction()
    before = seen(log)
    hosted.disk.space_left = 100
    events = run_until(hosted, lambda cleaner: bool(cleaner._resting_until_ms))
    assert [event["event"] for event in events] == ["cleaning_failed"]
    assert table(seen(log)) == table(before)
    assert not [
        name
        for name in (entry.name for entry in hosted.disk.list_directory(log.directory))
        if name.endswith((".cleaned", ".swap"))
    ]
    hosted.disk.space_left = None
    run_until(hosted, lambda _: is_clean(log))


def test_a_node_that_stops_ends_a_pass_at_once_and_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=200)
    before = seen(log)
    slow = replace(SETTINGS, bytes_per_second_max=1_000.0, threads=2)
    run_until(hosted, lambda cleaner: cleaner._throttle.spend(0) > DEBT_SECONDS_MAX, slow)
    gc.collect()
    assert seen(log) == before
    assert caplog.records == []
    hosted.directory.close()


def test_a_cleaner_that_is_switched_off_does_nothing() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=60)
    run_until(hosted, lambda _: False, replace(SETTINGS, enable=False))
    assert log.compacted_end is None


@pytest.mark.parametrize(
    "before", [replace(SETTINGS, threads=0), replace(SETTINGS, bytes_per_second_max=100.0, threads=2)]
)
def test_altered_settings_hold_at_once_also_for_a_pass_under_way(before: CleanerSettings) -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=200)

    def altered_then_clean(cleaner: LogCleaner) -> bool:
        if not before.threads or cleaner._under_way:
            cleaner.reconfigure(SETTINGS)
        return is_clean(log)

    run_until(hosted, altered_then_clean, before)
    assert is_clean(log)
    hosted.directory.close()


def test_nothing_is_compacted_outside_the_schedule() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=60)
    looks = 0

    def looked(_: LogCleaner) -> bool:
        nonlocal looks
        looks += 1
        return looks == 20

    run_until(hosted, looked, schedule="* * 29 2 *")
    assert log.compacted_end is None


def test_what_a_crash_of_the_machine_could_take_lets_nothing_go() -> None:
    hosted = Hosted()
    log = hosted.log("state", dirty=60)
    written = seen(log)
    assert log.recovery_point == 0
    run_until(hosted, lambda _: is_clean(log))
    assert log.recovery_point >= 60
    hosted.disk.crash()
    directory = LogDirectory.open(
        hosted.disk, Path("/data"), ManualClock(), broker_id=BrokerId(1), cluster_id="jfk"
    )
    recovered = directory.load(lambda partition: COMPACTED)[TopicPartition("state", 0)]
    assert table(seen(recovered)) == table(written)
    directory.close()
