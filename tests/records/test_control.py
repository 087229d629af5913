from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError
from broker.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    TRANSACTIONAL_FLAG,
    read_header,
    restamp,
    verify_crc,
    write_header,
)
from broker.records.control import Marker, MarkerType, build_marker, read_marker
from tests.records.samples import NOW_MS, Sample, build, read


@given(st.sampled_from(MarkerType), st.integers(-1, (1 << 31) - 1), st.integers(0, 1 << 60))
def test_markers_are_read_as_they_were_built(kind: MarkerType, epoch: int, producer_id: int) -> None:
    marker = Marker(type=kind, coordinator_epoch=epoch)
    batch = build_marker(marker, producer_id=producer_id, producer_epoch=7, timestamp_ms=NOW_MS)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    assert header.attributes == TRANSACTIONAL_FLAG | CONTROL_FLAG
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 7, -1)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS)
    assert read_marker(batch, header) == marker


@pytest.mark.parametrize(("kind", "theirs"), [(0, ABORT_MARKER), (1, COMMIT_MARKER)])
def test_another_client_knows_our_markers(kind: int, theirs: ControlRecord) -> None:
    marker = Marker(type=MarkerType(kind), coordinator_epoch=3)
    (record,) = read(build_marker(marker, producer_id=1, producer_epoch=1, timestamp_ms=NOW_MS))
    assert ControlRecord.parse(record.key) == theirs


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    batch = build([Sample(NOW_MS, key, value, [])])
    restamp(batch, 0, len(batch), attributes=0x30, producer_id=1, producer_epoch=1, base_sequence=-1)
    return batch


def test_markers_of_later_versions_are_read() -> None:
    batch = control_batch(b"\0\1\0\1\0\0", b"\0\1\0\0\0\x09\0\0")
    assert read_marker(batch, read_header(batch)) == Marker(type=MarkerType.COMMIT, coordinator_epoch=9)


def test_other_control_records_and_emptied_batches_are_no_markers() -> None:
    batch = control_batch(b"\0\0\0\2", b"leader change")
    assert read_marker(batch, read_header(batch)) is None
    emptied = batch[:HEADER_SIZE]
    write_header(emptied, 0, read_header(batch)._replace(batch_length=HEADER_SIZE - 12, record_count=0))
    assert read_marker(emptied, read_header(emptied)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0\0", b""),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", bytes(5000)),
    ],
)
def test_torn_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(CorruptRecordsError):
        read_marker(batch, read_header(batch))
