"""Deduplication of idempotent producers: sequences, epochs, the window of appends, and the snapshot."""

from __future__ import annotations

from struct import Struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import CONTROL_FLAG, SEQUENCE_LIMIT, TRANSACTIONAL_FLAG, BatchHeader
from broker.records.control import Marker, MarkerType
from broker.storage.producer_entry import APPENDS_REMEMBERED, Original
from broker.storage.producers import ProducerStates

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


def test_the_last_batches_are_answered_with_their_offsets() -> None:
    states = ProducerStates()
    for index in range(APPENDS_REMEMBERED + 1):
        append(states, header(index * 10, 10), 100 + index * 10)
    for index in range(1, APPENDS_REMEMBERED + 1):
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


def marker_header(*, producer: int = 7, epoch: int = 0, offset: int = 0) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return header(-1, producer=producer, epoch=epoch, offset=offset, attributes=attributes)


def marker(kind: MarkerType = MarkerType.ABORT, coordinator_epoch: int = 0) -> Marker:
    return Marker(type=kind, coordinator_epoch=coordinator_epoch)


def marker_refusal(states: ProducerStates, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
    with pytest.raises(ProtocolError) as caught:
        states.check_marker(7, producer_epoch, coordinator_epoch)
    return caught.value.code


def in_transaction(sequence: int, count: int = 1, **fields: int) -> BatchHeader:
    return header(sequence, count, attributes=TRANSACTIONAL_FLAG, **fields)


def test_a_transaction_is_open_until_its_marker() -> None:
    states = ProducerStates()
    states.replay(in_transaction(0, 2, offset=10), NOW)
    states.replay(in_transaction(2, 2, offset=12), NOW)
    entry = states.get(7)
    assert entry is not None
    assert entry.transaction_first_offset == 10
    assert states.expire(NOW + 1_000_000, 1000) == 0
    assert states.replay(marker_header(offset=14), NOW, marker()) == (7, 10, 14, 15)
    assert entry.transaction_first_offset == -1
    assert states.check(header(4)) is None
    assert states.expire(NOW + 1_000_000, 1000) == 1


def test_an_abort_says_where_the_oldest_open_transaction_begins() -> None:
    states = ProducerStates()
    for producer, offset in ((1, 10), (2, 11), (3, 12)):
        states.appended(in_transaction(0, producer=producer), offset, NOW)
    assert states.marked(marker_header(producer=2, offset=13), marker(), NOW) == (2, 11, 13, 10)
    assert states.marked(marker_header(producer=1, offset=14), marker(MarkerType.COMMIT), NOW) is None
    assert states.marked(marker_header(producer=3, offset=15), marker(), NOW) == (3, 12, 15, 16)


def test_a_marker_without_a_transaction_aborts_nothing_and_sets_the_epochs() -> None:
    states = ProducerStates()
    assert states.marked(marker_header(epoch=3, offset=5), marker(coordinator_epoch=2), NOW) is None
    entry = states.get(7)
    assert entry is not None
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (3, 2, -1)
    assert refusal(states, header(1, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, epoch=3)) is None


def test_deposed_producers_and_coordinators_are_fenced() -> None:
    states = ProducerStates()
    states.check_marker(7, 0, 0)
    states.marked(marker_header(epoch=3), marker(coordinator_epoch=2), NOW)
    assert marker_refusal(states, 2, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker_refusal(states, 3, 1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    states.check_marker(7, 3, 2)
    states.check_marker(7, 4, 3)


def test_a_control_batch_without_a_marker_changes_nothing() -> None:
    states = ProducerStates()
    states.replay(in_transaction(0, offset=10), NOW)
    assert states.replay(marker_header(offset=11), NOW) is None
    assert states.transactions.first_unstable(100) == 10


def test_while_a_transaction_is_open_nothing_is_written_outside_of_it() -> None:
    states = ProducerStates()
    states.appended(in_transaction(0), 0, NOW)
    assert refusal(states, header(1)) is ErrorCode.INVALID_TXN_STATE
    assert states.check(header(0)) == (0, 0, NOW)
    with pytest.raises(ProtocolError) as caught:
        ProducerStates().check_all([in_transaction(0), header(1)])
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    states.marked(marker_header(offset=1), marker(MarkerType.COMMIT), NOW)
    assert states.check(header(1)) is None


def test_a_transaction_stays_unstable_until_its_marker_is_committed() -> None:
    states = ProducerStates()
    assert not states.transactions
    states.appended(in_transaction(0, producer=1), 5, NOW)
    states.appended(in_transaction(0, producer=2), 6, NOW)
    states.marked(marker_header(producer=2, offset=7), marker(MarkerType.COMMIT), NOW)
    assert states.transactions.first_unstable(100) == 5
    states.marked(marker_header(producer=1, offset=8), marker(MarkerType.COMMIT), NOW)
    assert states.transactions.first_unstable(8) == 5
    assert states.transactions.first_unstable(9) is None
    assert not states.transactions


def test_a_snapshot_holds_open_transactions_as_kafka_does() -> None:
    states = ProducerStates()
    states.appended(in_transaction(0, producer=2, epoch=1), 20, NOW)
    states.appended(in_transaction(0, producer=1), 30, NOW)
    states.marked(marker_header(producer=3, epoch=9, offset=31), marker(coordinator_epoch=4), NOW)
    snapshot = states.snapshot()
    assert list(ENTRY.iter_unpack(snapshot[10:])) == [
        (2, 1, 0, 20, 0, NOW, -1, 20),
        (1, 0, 0, 30, 0, NOW, -1, 30),
        (3, 9, -1, -1, 0, NOW, 4, -1),
    ]
    restored = ProducerStates()
    restored.load(snapshot)
    assert restored.snapshot() == snapshot
    assert restored.transactions.first_unstable(100) == 20
    assert restored.marked(marker_header(producer=2, epoch=1, offset=40), marker(), NOW) == (2, 20, 40, 30)


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
    assert [entry[2] for entry in entries] == [2, 3, 4, 5, 6, 7]


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


def test_what_a_coordinator_writes_opens_its_producers_transaction_without_sequences() -> None:
    states = ProducerStates()
    without_sequence = header(-1, attributes=TRANSACTIONAL_FLAG, epoch=3, offset=20)
    states.check_unsequenced(without_sequence)
    states.joined(without_sequence, 20, NOW)
    entry = states.get(7)
    assert entry is not None
    assert (entry.transaction_first_offset, entry.last_sequence) == (20, -1)
    assert states.is_in_transaction(7, 3)
    assert not states.is_in_transaction(7, 4)
    with pytest.raises(ProtocolError) as stale:
        states.check_unsequenced(header(-1, attributes=TRANSACTIONAL_FLAG, epoch=2))
    assert stale.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    follower = ProducerStates()
    follower.replay(without_sequence, NOW)
    assert follower.snapshot() == states.snapshot()
    assert states.marked(marker_header(epoch=3, offset=21), marker(), NOW) == (7, 20, 21, 22)
    assert not states.is_in_transaction(7, 3)
