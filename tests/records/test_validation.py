from __future__ import annotations

import pytest

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Codec, read_header
from broker.records.validation import (
    InvalidRecordsError,
    RecordProblem,
    RecordRules,
    validate_header,
    validate_records,
)
from tests.records.samples import NOW_MS, PLAIN_SAMPLES, SIZE_MAX, Sample, build


@pytest.mark.parametrize("codec", Codec)
def test_what_producers_send_is_accepted(codec: Codec) -> None:
    validate_header(read_header(build(PLAIN_SAMPLES, codec)))
    stamped = build(
        PLAIN_SAMPLES, codec, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    validate_header(read_header(stamped))
    rules = RecordRules(
        size_max=SIZE_MAX, key_required=True, timestamp_min_ms=NOW_MS, timestamp_max_ms=NOW_MS + 4
    )
    validate_records(stamped, read_header(stamped), rules)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"attributes": CONTROL_FLAG}, "control"),
        ({"base_offset": 3}, "count from 0"),
        ({"record_count": 0, "last_offset_delta": 0}, "without records"),
        ({"record_count": 4}, "4 records cannot span 5"),
        ({"record_count": 6}, "6 records cannot span 5"),
        ({"producer_id": 1, "producer_epoch": 0}, "without epoch or sequence"),
        ({"producer_id": 1, "base_sequence": 0}, "without epoch or sequence"),
        ({"attributes": TRANSACTIONAL_FLAG}, "without a producer id"),
    ],
)
def test_headers_that_producers_must_not_send_are_refused(lie: dict[str, int], message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as refusal:
        validate_header(read_header(build(PLAIN_SAMPLES))._replace(**lie))
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(CorruptRecordsError):
        validate_header(read_header(build(PLAIN_SAMPLES))._replace(attributes=7))


def test_records_without_a_key_are_named_on_compacted_topics() -> None:
    batch = build([PLAIN_SAMPLES[0], Sample(NOW_MS, None, b"", []), Sample(NOW_MS, b"", None, [])])
    with pytest.raises(InvalidRecordsError) as refusal:
        validate_records(batch, read_header(batch), RecordRules(size_max=SIZE_MAX, key_required=True))
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert refusal.value.problems == (RecordProblem(1, "a compacted topic takes no record without a key"),)
    validate_records(batch, read_header(batch), RecordRules(size_max=SIZE_MAX))


def test_timestamps_out_of_bounds_are_named_and_no_timestamp_is_within() -> None:
    batch = build([Sample(timestamp, b"", b"", []) for timestamp in (10, -1, 9, 20, 21)])
    rules = RecordRules(size_max=SIZE_MAX, timestamp_min_ms=10, timestamp_max_ms=20)
    with pytest.raises(InvalidRecordsError) as refusal:
        validate_records(batch, read_header(batch), rules)
    assert refusal.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [problem.batch_index for problem in refusal.value.problems] == [2, 4]


def test_problems_are_bounded() -> None:
    batch = build([Sample(NOW_MS, None, b"", [])] * 5000, Codec.ZSTD)
    with pytest.raises(InvalidRecordsError) as refusal:
        validate_records(batch, read_header(batch), RecordRules(size_max=SIZE_MAX, key_required=True))
    assert len(refusal.value.problems) == 100


def test_corruption_behind_a_problem_is_still_corruption() -> None:
    batch = build([Sample(NOW_MS, None, b"", [])] * 5000)
    batch[-1] = 0x7F
    with pytest.raises(CorruptRecordsError):
        validate_records(batch, read_header(batch), RecordRules(size_max=SIZE_MAX, key_required=True))


def test_a_bomb_is_corruption() -> None:
    batch = build([Sample(NOW_MS, b"", bytes(1 << 20), [])], Codec.ZSTD)
    with pytest.raises(CorruptRecordsError):
        validate_records(batch, read_header(batch), RecordRules(size_max=1 << 20))
