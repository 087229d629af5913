"""What a load asks a real node before it reads, without Spark around it."""

from __future__ import annotations

import json

import pytest

from broker.client.producer import Producer
from mirrormaker.spark.batch_reader import MirrorReader, RangePartition
from mirrormaker.spark.lookups import LogLookup
from mirrormaker.spark.offsets import Logs
from mirrormaker.spark.options import parse_options
from tests.spark.topics import NOW_MS, fill


def ranges_of(bootstrap: str, topic: str, **options: str) -> list[tuple[int, int, int]]:
    """Partition, start and end of what the tasks of a load would read."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    ranges = [
        task.offset_range
        for task in MirrorReader(parse_options({**given, **options})).partitions()
        if isinstance(task, RangePartition)
    ]
    return [(each.partition.partition, each.start, each.end) for each in ranges]


def test_partitions_without_a_time_are_read_as_offsets_say(bootstrap: str) -> None:
    topic = fill(bootstrap, partitions=3, count=9)
    by_time = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": NOW_MS + 3}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"1": NOW_MS + 4}}),
    }
    assert ranges_of(bootstrap, topic, **by_time) == [(0, 1, 3), (1, 0, 1), (2, 0, 3)]
    by_offset = {
        "startingOffsets": json.dumps({topic: {"2": 1}}),
        "endingOffsets": json.dumps({topic: {"2": 2}}),
    }
    assert ranges_of(bootstrap, topic, **by_time, **by_offset) == [(0, 1, 3), (1, 0, 1), (2, 1, 2)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingTimestamp": str(NOW_MS + 100)}, [(0, 0, 4)]),
        ({"startingTimestamp": str(NOW_MS + 100), "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_what_comes_while_offsets_are_asked_for_is_left_for_the_next_load(
    bootstrap: str,
    options: dict[str, str],
    expected: list[tuple[int, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = fill(bootstrap, partitions=1, count=4)
    look = LogLookup.logs

    async def look_before_more_comes(lookup: LogLookup, *, missing_allowed: bool = False) -> Logs:
        logs = await look(lookup, missing_allowed=missing_allowed)
        async with Producer(lookup._cluster) as producer:
            for late_ms in (5, 100):
                await producer.send(topic, b"more", partition=0, timestamp_ms=NOW_MS + late_ms)
            await producer.flush()
        return logs

    monkeypatch.setattr(LogLookup, "logs", look_before_more_comes)
    assert ranges_of(bootstrap, topic, **options) == expected
