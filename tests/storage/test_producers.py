"""Deduplication of idempotent producers: sequences, epochs, the window of five appends, and the snapshot."""

from __future__ import annotations

from struct import Struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import CONTROL_FLAG, SEQUENCE_LIMIT, TRANSACTIONAL_FLAG, BatchHeader
from broker.storage.producers import APPENDS_REMEMBERED, Original, ProducerStates

NOW = 1_700_000_000_000
ENTRY = Struct(">qhiqiqiq")


def header(
    sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, attributes: int = 0, offset: int = 0
) -> BatchHeader:
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, count - 1, NOW, NOW, producer, epoch, sequence, count
    )


def append(states: ProducerStates, batch: BatchHeader, offset: int) -> None:
    assert states.check(batch) is None
    states.appended(batch, offset, NOW)


def refusal(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(ProtocolError) as caught:
        states.check(batch)
    return caught.value.code


def answer(states: ProducerStates, batch: BatchHeader) -> Original | ErrorCode | None:
    try:
        return states.check(batch)
    except ProtocolError as error:
        return error.code


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerStates().check(header(12345)) is None


def test_the_last_five_batches_are_answered_with_their_offsets() -> None:
    states = ProducerStates()
    for index in range(6):
        append(states, header(index * 10, 10), 100 + index * 10)
    for index in range(1, 6):
        assert states.check(header(index * 10, 10)) == (100 + index * 10, 109 + index * 10, NOW)
    assert refusal(states, header(0, 10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order() -> None:
    states = ProducerStates()
    append(states, header(0, 10), 0)
    assert refusal(states, header(11)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, header(5, 10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(10)) is None


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    append(states, header(SEQUENCE_LIMIT - 3, 5), 0)
    assert states.check(header(SEQUENCE_LIMIT - 3, 5)) == (0, 4, NOW)
    append(states, header(2, 5), 5)
    assert states.check(header(SEQUENCE_LIMIT - 3, 5)) == (0, 4, NOW)
    assert refusal(states, header(SEQUENCE_LIMIT - 1, 20)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_refused_and_a_new_one_starts_at_zero() -> None:
    states = ProducerStates()
    append(states, header(0, 3, epoch=4), 0)
    assert refusal(states, header(3, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(3, epoch=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(states, header(0, 3, epoch=5), 3)
    assert states.check(header(0, 3, epoch=5)) == (3, 5, NOW)
    assert refusal(states, header(0, 3, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_mix() -> None:
    states = ProducerStates()
    append(states, header(0, producer=1), 0)
    append(states, header(0, producer=2), 1)
    assert states.check(header(1, producer=1)) is None
    assert states.check(header(0, producer=2)) == (1, 1, NOW)


def test_batches_of_one_append_are_checked_one_after_another() -> None:
    states = ProducerStates()
    append(states, header(0, 10), 0)
    verdicts = states.check_all(
        [header(0, 10), header(10, 5), header(15), header(0, producer=8), header(-1, producer=-1)]
    )
    assert verdicts == [(0, 9, NOW), None, None, None, None]
    with pytest.raises(ProtocolError):
        states.check_all([header(10, 5), header(16)])
    with pytest.raises(ProtocolError):
        states.check_all([header(10, 5), header(0, epoch=1), header(15)])


def test_an_append_of_many_batches_is_remembered_as_one() -> None:
    states = ProducerStates()
    for request in range(APPENDS_REMEMBERED):
        for part in range(8):
            sequence = request * 8 + part
            states.appended(header(sequence), 100 + sequence, NOW, joins=part > 0)
    for request in range(APPENDS_REMEMBERED):
        repeated = [header(request * 8 + part) for part in range(8)]
        offsets = [verdict.first_offset for verdict in states.check_all(repeated) if verdict is not None]
        assert offsets == [100 + request * 8 + part for part in range(8)]


def test_replayed_neighbours_are_remembered_as_one() -> None:
    states = ProducerStates()
    for number in range(100):
        states.replay(header(number, offset=number), NOW)
    states.replay(header(100, offset=150), NOW)
    assert states.check(header(3)) == (3, 3, NOW)
    assert states.check(header(100)) == (150, 150, NOW)
    entry = states.get(7)
    assert entry is not None
    assert len(entry.appends) == 2


def test_a_transaction_is_open_until_its_marker() -> None:
    states = ProducerStates()
    states.replay(header(0, 2, offset=10, attributes=TRANSACTIONAL_FLAG), NOW)
    states.replay(header(2, 2, offset=12, attributes=TRANSACTIONAL_FLAG), NOW)
    entry = states.get(7)
    assert entry is not None
    assert entry.transaction_first_offset == 10
    assert states.expire(NOW + 1_000_000, 1000) == 0
    states.replay(header(-1, offset=14, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG), NOW)
    assert entry.transaction_first_offset == -1
    assert states.check(header(4)) is None


def test_producers_not_heard_of_are_forgotten() -> None:
    states = ProducerStates()
    states.appended(header(0, producer=1), 0, NOW)
    states.appended(header(0, producer=2), 1, NOW + 500)
    assert states.expire(NOW + 1000, 1000) == 1
    assert states.get(1) is None
    assert states.check(header(99, producer=1)) is None
    assert states.check(header(0, producer=2)) is not None


def test_the_snapshot_is_kafkas() -> None:
    states = ProducerStates()
    states.appended(header(3, 4, epoch=2), 100, NOW)
    entry = ENTRY.pack(7, 2, 6, 103, 3, NOW, -1, -1)
    counted = (1).to_bytes(4, "big") + entry
    expected = (1).to_bytes(2, "big") + crc32c(counted).to_bytes(4, "big") + counted
    assert states.snapshot() == expected


def test_the_last_entry_of_a_producer_is_the_newest_as_kafka_reads_it() -> None:
    states = ProducerStates()
    for index in range(8):
        states.appended(header(index), index, NOW)
    entries = list(ENTRY.iter_unpack(states.snapshot()[10:]))
    assert [entry[2] for entry in entries] == [3, 4, 5, 6, 7]


batches = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 20), st.booleans()), max_size=40
)


@given(batches)
def test_a_snapshot_restores_every_answer(history: list[tuple[int, int, int, bool]]) -> None:
    states, offset = ProducerStates(), 0
    next_sequences: dict[tuple[int, int], int] = {}
    appended = []
    for producer, epoch, count, joins in history:
        known = states.get(producer)
        epoch = max(epoch, known.epoch if known else 0)
        sequence = next_sequences.get((producer, epoch), 0)
        batch = header(sequence, count, producer=producer, epoch=epoch)
        assert states.check(batch) is None
        states.appended(batch, offset, NOW, joins=joins)
        next_sequences[producer, epoch] = sequence + count
        appended.append(batch)
        offset += count + producer
    restored = ProducerStates()
    restored.load(states.snapshot())
    assert restored.snapshot() == states.snapshot()
    for batch in appended:
        assert answer(restored, batch) == answer(states, batch)


@given(st.data())
def test_a_damaged_snapshot_is_refused_and_changes_nothing(data: st.DataObject) -> None:
    states = ProducerStates()
    for index in range(3):
        states.appended(header(0, producer=index), index, NOW)
    snapshot = bytearray(states.snapshot())
    at = data.draw(st.integers(0, len(snapshot) - 1))
    damaged = data.draw(
        st.sampled_from(
            [
                bytes(snapshot[:at]),
                bytes(snapshot[:at]) + bytes([snapshot[at] ^ 0x41]) + bytes(snapshot[at + 1 :]),
            ]
        )
    )
    with pytest.raises(CorruptRecordsError):
        states.load(damaged)
    assert len(states) == 3
