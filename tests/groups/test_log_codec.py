"""Records of `__consumer_offsets` byte by byte, partitions of groups, damaged logs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.record_batches import build_batch, encoded_size
from broker.coordinators.stored_batches import Unreadable
from broker.errors import WireError
from broker.groups.events import GroupMetadata, MemberMetadata
from broker.groups.log_codec import (
    GroupRecord,
    LogRecord,
    OffsetRecord,
    TransactionEnded,
    decode,
    encode,
    read_log,
)
from broker.groups.offsets import CommittedOffset
from broker.records.batch import read_header
from broker.records.builder import BatchBuilder
from broker.records.control import Marker, MarkerType, build_marker
from broker.types import TopicPartition

NOW_MS = 1_700_000_000_000
OFFSET = OffsetRecord(
    group_id="g",
    partition=TopicPartition("top", 7),
    committed=CommittedOffset(offset=42, leader_epoch=3, metadata="é", commit_timestamp_ms=NOW_MS),
)
GROUP = GroupRecord(
    group_id="g",
    metadata=GroupMetadata(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m-1",
        state_timestamp_ms=NOW_MS,
        members=(
            MemberMetadata(
                member_id="m-1",
                instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=300_000,
                session_timeout_ms=45_000,
                subscription=b"\x00\x01",
                assignment=b"\x02",
            ),
        ),
    ),
)


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    key, value = encode(OFFSET)
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x03top" + struct.pack(">i", 7)
    assert value == b"\x00\x03" + struct.pack(">qi", 42, 3) + b"\x00\x02\xc3\xa9" + struct.pack(">q", NOW_MS)


def test_an_offset_that_expires_at_a_time_of_its_own_is_written_in_version_1() -> None:
    committed = CommittedOffset(offset=42, metadata="", commit_timestamp_ms=1, expire_timestamp_ms=2)
    record = OffsetRecord(group_id="g", partition=TopicPartition("t", 0), committed=committed)
    key, value = encode(record)
    assert value == b"\x00\x01" + struct.pack(">q", 42) + b"\x00\x00" + struct.pack(">qq", 1, 2)
    assert decode(key, value) == record


def test_a_group_is_written_as_kafka_writes_it() -> None:
    key, value = encode(GROUP)
    assert key == b"\x00\x02" + b"\x00\x01g"
    assert value == (
        b"\x00\x03"
        + b"\x00\x08consumer"
        + struct.pack(">i", 5)
        + b"\x00\x05range"
        + b"\x00\x03m-1"
        + struct.pack(">q", NOW_MS)
        + struct.pack(">i", 1)
        + b"\x00\x03m-1"
        + b"\x00\x01i"
        + b"\x00\x01c"
        + b"\x00\x02/h"
        + struct.pack(">ii", 300_000, 45_000)
        + struct.pack(">i", 2)
        + b"\x00\x01"
        + struct.pack(">i", 1)
        + b"\x02"
    )


def test_a_tombstone_has_a_key_and_no_value() -> None:
    gone = GroupRecord(group_id="g", metadata=None)
    assert encode(gone) == (b"\x00\x02\x00\x01g", None)
    assert decode(b"\x00\x02\x00\x01g", None) == gone


text = st.text(max_size=20)
milliseconds = st.integers(0, 2**62)
offset_records = st.builds(
    OffsetRecord,
    group_id=text,
    partition=st.builds(TopicPartition, text, st.integers(0, 2**31 - 1)),
    committed=st.none()
    | st.builds(
        CommittedOffset,
        offset=st.integers(-1, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=text,
        commit_timestamp_ms=milliseconds,
    ),
)
group_records = st.builds(
    GroupRecord,
    group_id=text,
    metadata=st.none()
    | st.builds(
        GroupMetadata,
        protocol_type=text,
        generation=st.integers(0, 2**31 - 1),
        protocol=st.none() | text,
        leader=st.none() | text,
        state_timestamp_ms=milliseconds,
        members=st.lists(
            st.builds(
                MemberMetadata,
                member_id=text,
                instance_id=st.none() | text,
                client_id=text,
                client_host=text,
                rebalance_timeout_ms=st.integers(0, 2**31 - 1),
                session_timeout_ms=st.integers(0, 2**31 - 1),
                subscription=st.binary(max_size=20),
                assignment=st.binary(max_size=20),
            ),
            max_size=3,
        ).map(tuple),
    ),
)


@given(st.lists(offset_records | group_records, min_size=1, max_size=8))
def test_what_is_written_is_read_back(records: list[LogRecord]) -> None:
    pairs = [encode(record) for record in records]
    batch = build_batch(pairs, NOW_MS)
    assert list(read_log(batch, batch_bytes_max=1 << 20)) == records
    assert len(batch) <= encoded_size(pairs) + 96
    assert read_header(batch).record_count == len(records)


def test_records_of_newer_protocols_are_passed_over() -> None:
    assert decode(b"\x00\x09\x00\x01g", b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\x00\x01\x00", b""), (b"\x00\x02\x00\x01g", b"\x00\x63"), (b"\x00\x02\x00\x01g", b"")],
)
def test_garbled_records_are_told_apart(key: bytes, value: bytes | None) -> None:
    with pytest.raises(WireError):
        decode(key, value)


def test_damage_costs_the_record_or_the_batch_it_is_in() -> None:
    good = encode(OFFSET)
    first = build_batch([good, (b"\x00\x02\x00\x01g", b"\x00"), encode(GROUP)], NOW_MS)
    second = build_batch([good], NOW_MS)
    second[-1] ^= 0xFF
    entries = list(read_log(bytes(first + second + build_batch([good], NOW_MS)), batch_bytes_max=1 << 20))
    assert [type(entry) for entry in entries] == [
        OffsetRecord,
        Unreadable,
        GroupRecord,
        Unreadable,
        OffsetRecord,
    ]


def test_offsets_of_a_transaction_carry_its_producer_until_its_marker() -> None:
    builder = BatchBuilder(
        size_max=10_000, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    builder.append(NOW_MS, *encode(OFFSET))
    commit = Marker(type=MarkerType.COMMIT, coordinator_epoch=1)
    log = builder.build() + build_marker(commit, producer_id=9, producer_epoch=0, timestamp_ms=NOW_MS)
    written, ended = read_log(bytes(log), batch_bytes_max=1 << 20)
    assert written == OffsetRecord(
        group_id=OFFSET.group_id, partition=OFFSET.partition, committed=OFFSET.committed, producer_id=9
    )
    assert ended == TransactionEnded(producer_id=9, committed=True)
