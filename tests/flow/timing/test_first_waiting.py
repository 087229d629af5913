"""How old the first batch is that waits, by its header."""

from __future__ import annotations

import pytest

from broker.records.batch import Codec, read_header, stamp_append_time
from broker.records.builder import BatchBuilder
from broker.records.excerpt import excerpt, open_batch
from broker.records.message_set import build_message_set
from broker.records.record import Record, TimestampType
from mirrormaker.flow.timing.first_waiting import FirstBatch, read_first

BASE_MS = 1_767_225_600_000
LATER_MS = BASE_MS + 86_400_000


def batch() -> bytearray:
    """Records of three seconds."""
    builder = BatchBuilder(Codec.NONE, size_max=1 << 20)
    for number in range(3):
        builder.append(BASE_MS + number * 1000, b"%d" % number, None, ())
    return builder.build()


def timestamp_of(first: FirstBatch | None) -> int:
    assert first is not None
    return first.timestamp_ms


def test_a_batch_is_as_old_as_its_first_record() -> None:
    assert timestamp_of(read_first(batch())) == BASE_MS


def test_a_batch_that_the_node_dated_is_as_old_as_its_append() -> None:
    records = batch()
    stamp_append_time(records, 0, read_header(records), LATER_MS)
    assert timestamp_of(read_first(records)) == LATER_MS


def test_a_batch_whose_tombstones_may_go_one_day_is_not_of_that_day() -> None:
    records = batch()
    opened = open_batch(records, read_header(records), size_max=1 << 20)
    left = excerpt(opened, [True, True, False], delete_horizon_ms=LATER_MS)
    assert timestamp_of(read_first(left)) == BASE_MS + 1000


def messages(magic: int, codec: Codec) -> bytes:
    """Of three seconds, from offset 7 on, as logs of before Kafka 0.11 have them."""
    records = [
        Record(7 + number, BASE_MS + number * 1000, TimestampType.CREATE_TIME, None, b"%d" % number, ())
        for number in range(3)
    ]
    return build_message_set(records, magic, codec)


@pytest.mark.parametrize(("magic", "timestamp_ms"), [(0, -1), (1, BASE_MS)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_message_of_an_old_format_is_as_old_as_it_says_where_that_format_has_times(
    magic: int, timestamp_ms: int, codec: Codec
) -> None:
    """So are those that are compressed together, which are asked for by any offset of theirs."""
    records = messages(magic, codec)
    told = FirstBatch(timestamp_ms=timestamp_ms, bytes_per_offset=len(records) / 3)
    assert read_first(records) == told
    first = records if codec is Codec.GZIP else records[: len(records) // 3]
    assert read_first(first) == told
    assert read_first(first[:-1]) is None
