"""Since when the first record of a partition waits: what is queued tells, else the source."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.asking_leaders import Answers
from broker.client.cluster import Cluster
from broker.client.offsets import OffsetAndTimestamp
from broker.clock import SystemClock
from broker.errors import BrokerError
from broker.records.batch import TIMESTAMP_TYPE_FLAG, Codec, read_header, write_header
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from mirrormaker.flow.chunk import Frame
from mirrormaker.flow.cutting import take_in
from mirrormaker.flow.intake import IntakeConfig
from mirrormaker.flow.lag import EndHistory
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.timing import waiting as waiting_module
from mirrormaker.flow.timing.first_waiting import FirstBatch
from mirrormaker.flow.timing.waiting import Waiting
from mirrormaker.flow.trouble import Trouble, TroubleKind
from tests.flow.timing.partitions import ORDERS, partition_at

SIZE_MAX = 1 << 20
NOW_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
TOGETHER = IntakeConfig(chunk_bytes=SIZE_MAX, chunk_batches_max=100)


def batch(base_offset: int, *timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(codec, size_max=SIZE_MAX)
    for timestamp in timestamps:
        builder.append(timestamp, None, b"value", ())
    built = builder.build()
    write_header(built, 0, read_header(built)._replace(base_offset=base_offset))
    return built


def outage() -> bytearray:
    """What came in an hour: two records a minute."""
    begun_ms = NOW_MS - HOUR_MS
    times = [(begun_ms + 60_000 * minute, begun_ms + 60_000 * minute + 30_000) for minute in range(60)]
    return bytearray().join(batch(2 * minute, *pair) for minute, pair in enumerate(times))


def since_ms(answer: bytearray, config: IntakeConfig, *, absent_for_ms: int | None = None) -> int | None:
    """Of a partition at 0 with the answer in its queue, which was at its end until `absent_for_ms` ago."""
    partition, history = partition_at(0, 120), EndHistory()
    if absent_for_ms is not None:
        history.observe(0, NOW_MS - absent_for_ms)
    history.observe(120, NOW_MS)
    nobody: Any = None
    waiting = Waiting(nobody, {ORDERS: history}, SystemClock(), nobody, read_committed=True)
    partition.lanes[0].queue.extend(take_in(answer, 0, config, Frame(len(answer))).chunks)
    return waiting.since_ms(partition, waiting.timestamp_ms(partition), 0)


@pytest.mark.parametrize(
    "config",
    [
        TOGETHER,
        replace(TOGETHER, codec=Codec.ZSTD),
        replace(TOGETHER, deep=True),
        replace(TOGETHER, gather_bytes=SIZE_MAX),
    ],
    ids=["as they are", "another codec", "decoded", "gathered"],
)
def test_of_batches_that_go_as_one_the_first_record_counts(config: IntakeConfig) -> None:
    assert since_ms(outage(), config) == NOW_MS - HOUR_MS
    assert since_ms(outage(), config, absent_for_ms=HOUR_MS + 5_000) == NOW_MS - HOUR_MS
    assert since_ms(outage(), config, absent_for_ms=5_000) == NOW_MS - 5_000


def test_a_partition_whose_fetches_fail_has_its_end_asked_for_and_one_that_tells_nothing_holds_back_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = TopicPartition("refused", 0)
    partitions = {each: Partition(each, [each], 0, 100, 1 << 20) for each in (ORDERS, refused)}
    partitions[ORDERS].source_problem = "TOPIC_AUTHORIZATION_FAILED"

    async def listed(
        cluster: object, wanted: Mapping[TopicPartition, int], **_: object
    ) -> Answers[OffsetAndTimestamp]:
        found = {each: OffsetAndTimestamp(offset=120) for each in wanted if each != refused}
        return Answers(found, {refused: BrokerError("it does not tell")})

    async def nothing_sampled(*_: object, **__: object) -> dict[TopicPartition, FirstBatch]:
        return {}

    monkeypatch.setattr(waiting_module, "list_offsets_found", listed)
    monkeypatch.setattr(waiting_module, "sample_first", nothing_sampled)
    ends: dict[TopicPartition, int] = {}
    led = SimpleNamespace(leader=lambda source: 1)
    waiting = Waiting(cast(Cluster, led), {}, SystemClock(), ends.__setitem__, read_committed=True)
    asyncio.run(waiting.look(partitions))
    assert ends == {ORDERS: 120}


@pytest.mark.parametrize(
    ("kind", "resume_at", "waits_from"),
    [
        (TroubleKind.TOPIC_RECREATED, 0, 0),
        (TroubleKind.TOPIC_RECREATED, 500, 500),
        (TroubleKind.SOURCE_TRUNCATED, 80, 80),
        (TroubleKind.SOURCE_TRUNCATED, 110, 100),
        (TroubleKind.SOURCE_GAP, 110, 100),
        (TroubleKind.TOPIC_DELETED, 0, 100),
    ],
)
def test_what_waits_begins_in_another_log_where_copying_would_go_on(
    kind: TroubleKind, resume_at: int, waits_from: int
) -> None:
    partition = partition_at(100, 600)
    partition.trouble = Trouble(kind=kind, source=ORDERS, position=100, resume_at=resume_at, problem="it")
    assert partition.waits_from == waits_from


def test_what_was_seen_of_another_log_says_nothing_of_when_records_came() -> None:
    """It had as many an hour ago; of these the first is ten seconds old."""
    partition, history = partition_at(100, 100), EndHistory()
    history.observe(100, NOW_MS - HOUR_MS)
    histories = {ORDERS: history}
    nowhere = SimpleNamespace(leader=lambda source: None)
    waiting = Waiting(
        cast(Cluster, nowhere), histories, SystemClock(), lambda source, end: None, read_committed=True
    )
    partition.trouble = Trouble(
        kind=TroubleKind.TOPIC_RECREATED, source=ORDERS, position=100, resume_at=0, problem="it"
    )
    waiting.forget_other_logs({ORDERS: partition})
    histories[ORDERS].observe(120, NOW_MS)
    waiting.forget_other_logs({ORDERS: partition})
    assert waiting.since_ms(partition, NOW_MS - 10_000, 0) == NOW_MS - 10_000


def test_records_that_the_source_dated_are_as_old_as_their_append() -> None:
    records = batch(0, 1_000, 2_000)
    header = read_header(records)
    dated = header._replace(attributes=header.attributes | TIMESTAMP_TYPE_FLAG, max_timestamp=NOW_MS - 7_000)
    write_header(records, 0, dated)
    assert since_ms(records, TOGETHER) == NOW_MS - 7_000


def test_a_first_record_without_a_time_is_as_old_as_those_beside_it_or_as_it_was_seen() -> None:
    assert since_ms(batch(0, -1, NOW_MS - 7_000), TOGETHER) == NOW_MS - 7_000
    assert since_ms(batch(0, -1, -1), TOGETHER) == NOW_MS


def test_records_are_as_large_as_those_that_were_copied_or_else_as_those_that_wait_first() -> None:
    nobody: Any = None
    waiting = Waiting(nobody, {}, SystemClock(), nobody, read_committed=True)
    partition = Partition(ORDERS, [ORDERS], 0, 0, 1 << 20)
    partition.source_end = 120
    assert waiting.bytes_per_offset(partition) is None
    answer = outage()
    partition.lanes[0].queue.extend(take_in(answer, 0, TOGETHER, Frame(len(answer))).chunks)
    assert waiting.bytes_per_offset(partition) == len(answer) / 120
    assert waiting.bytes_per_offset(partition_at(0, 120, bytes_per_offset=7)) == 7
