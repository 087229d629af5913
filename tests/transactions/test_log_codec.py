"""Records of `__transaction_state` byte by byte, and damaged logs."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinators.record_batches import build_batch
from broker.coordinators.stored_batches import Unreadable
from broker.errors import WireError
from broker.transactions.log_codec import TransactionRecord, decode, encode, read_log
from broker.transactions.state import STORED, State
from broker.transactions.transaction import Transaction
from broker.types import TopicPartition

NOW_MS = 1_700_000_000_000
OPEN = Transaction(
    producer_id=7,
    epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    updated_ms=NOW_MS,
    started_ms=NOW_MS - 5,
    partitions=frozenset({TopicPartition("top", 4), TopicPartition("top", 1)}),
)
IDS = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 9)), max_size=6)


def test_a_record_is_written_as_kafka_writes_it() -> None:
    key, value = encode(TransactionRecord(transactional_id="t", transaction=OPEN), value_version=0)
    assert key == b"\x00\x00" + b"\x00\x01t"
    partitions = struct.pack(">i", 1) + b"\x00\x03top" + struct.pack(">iii", 2, 1, 4)
    times = struct.pack(">qq", NOW_MS, NOW_MS - 5)
    assert value == b"\x00\x00" + struct.pack(">qhib", 7, 3, 60_000, 1) + partitions + times


def test_without_a_transaction_partitions_are_null() -> None:
    empty = Transaction(producer_id=7, epoch=0, timeout_ms=1, state=State.EMPTY, updated_ms=NOW_MS)
    _, value = encode(TransactionRecord(transactional_id="t", transaction=empty), value_version=0)
    assert value == b"\x00\x00" + struct.pack(">qhibiqq", 7, 0, 1, 0, -1, NOW_MS, -1)


def test_the_flexible_version_holds_the_ids_before_and_after() -> None:
    rotated = Transaction(
        producer_id=7,
        epoch=32767,
        timeout_ms=1,
        state=State.PREPARE_COMMIT,
        updated_ms=2,
        started_ms=1,
        previous_producer_id=5,
        next_producer_id=9,
        client_version=2,
    )
    _, value = encode(TransactionRecord(transactional_id="t", transaction=rotated), value_version=1)
    tags = (
        b"\x03"
        + b"\x00\x08"
        + struct.pack(">q", 5)
        + b"\x01\x08"
        + struct.pack(">q", 9)
        + b"\x02\x02\x00\x02"
    )
    assert (
        value
        == b"\x00\x01" + struct.pack(">qhib", 7, 32767, 1, 2) + b"\x01" + struct.pack(">qq", 2, 1) + tags
    )


@given(st.text(min_size=1, max_size=20), st.sampled_from(sorted(STORED, key=str)), PARTITIONS, IDS, IDS)
def test_records_come_back(
    name: str, state: State, partitions: frozenset[TopicPartition], before: int, after: int
) -> None:
    transaction = Transaction(
        producer_id=1,
        epoch=2,
        timeout_ms=3,
        state=state,
        updated_ms=4,
        started_ms=5,
        partitions=frozenset() if state is State.EMPTY else partitions,
        previous_producer_id=before,
        next_producer_id=after,
        client_version=2,
    )
    for record in (
        TransactionRecord(transactional_id=name, transaction=transaction),
        TransactionRecord(transactional_id=name, transaction=None),
    ):
        assert decode(*encode(record, value_version=1)) == record


def test_what_is_garbled_costs_itself_alone() -> None:
    good = encode(TransactionRecord(transactional_id="t", transaction=OPEN), value_version=1)
    dead = encode(TransactionRecord(transactional_id="t", transaction=OPEN), value_version=0)
    assert dead[1] is not None
    never_stored = bytearray(dead[1])
    never_stored[2 + 8 + 2 + 4] = State.DEAD.number
    batch = build_batch([good, (b"\x00\x09x", b""), (dead[0], bytes(never_stored)), good], NOW_MS)
    entries = list(read_log(batch, batch_bytes_max=1 << 20))
    assert [isinstance(entry, Unreadable) for entry in entries] == [False, True, True, False]
    with pytest.raises(WireError, match="never stored"):
        decode(dead[0], bytes(never_stored))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_strange_bytes_are_refused(key: bytes, value: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(key, value)
