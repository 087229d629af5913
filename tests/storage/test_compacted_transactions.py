"""Compaction of logs with transactions: aborted records go, markers after them, committed records stay."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.records.control import MarkerType
from broker.storage.log import Log
from tests.storage.compaction_samples import (
    BOUNDS,
    COMPACTED,
    Seen,
    committed,
    compact,
    end_transaction,
    headers,
    put,
    seen,
    table,
)
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, DiskAt, ManualClock

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


def transact(log: Log, producer_id: int, *keys: bytes, kind: MarkerType, sequence: int = 0) -> None:
    for index, key in enumerate(keys):
        put(log, (key, b"t"), producer=(producer_id, 0, sequence + index), transactional=True)
    end_transaction(log, producer_id, kind)


def close_range(log: Log) -> None:
    """Have a batch behind everything, in a segment that may be compacted."""
    put(log, (b"last", b"%d" % log.log_end_offset))
    log.roll()


def control_offsets(log: Log) -> list[int]:
    return [header.base_offset for header in headers(log) if header.is_control]


def test_aborted_records_go_at_once_and_their_marker_when_they_are_gone(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"a", b"before"))
    transact(log, 5, b"a", b"b", kind=ABORT)
    transact(log, 5, b"c", kind=COMMIT, sequence=2)
    close_range(log)
    compact(log)
    assert [(r.key, r.value) for r in seen(log)[:-1]] == [(b"a", b"before"), (b"c", b"t")]
    assert control_offsets(log) == [3, 5]  # a pass that met the batches keeps the marker
    assert not any(header.has_delete_horizon for header in headers(log))
    assert [entry.last_offset for entry in log.aborted_transactions(0, log.log_end_offset)] == [3]
    now_ms = NOW_MS
    for left in ([3, 5], [5]):  # the second gives it a time to stay, a later one takes it
        close_range(log)
        compact(log, now_ms=now_ms)
        assert control_offsets(log) == left
        assert not log.aborted_transactions(0, log.log_end_offset)
        now_ms += COMPACTED.delete_retention_ms
    assert [r.value for r in committed(log) if r.key == b"a"] == [b"before"]


def test_an_abort_behind_the_end_of_a_pass_is_not_forgotten(place: DiskAt) -> None:
    log = place.log(replace(COMPACTED, segment_bytes=4_000))
    put(log, (b"a", b"0"))
    put(log, (b"a", b"1"))
    put(log, (b"b", b"open"), producer=(5, 0, 0), transactional=True)
    transact(log, 6, b"b", b"c", kind=ABORT)
    log.roll()
    assert compact(log, end_offset_max=log.last_stable_offset(log.log_end_offset)).end_offset == 2
    assert [record.offset for record in seen(log)] == [1, 2, 3, 4]
    end_transaction(log, 5, COMMIT)
    assert [(r.key, r.value) for r in committed(log)] == [(b"a", b"1"), (b"b", b"open")]
    log.abandon()
    again = place.log(COMPACTED, compacted_end=2)
    assert [(r.key, r.value) for r in committed(again)] == [(b"a", b"1"), (b"b", b"open")]


def test_a_transaction_that_was_aborted_before_says_nothing_of_the_next(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"a", b"before"))
    transact(log, 5, b"x", kind=ABORT)
    close_range(log)
    compact(log)
    transact(log, 5, b"a", kind=COMMIT, sequence=1)
    close_range(log)
    compact(log)
    assert [r.value for r in seen(log) if r.key == b"a"] == [b"t"]


def test_a_committed_marker_stays_while_records_of_it_do(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    transact(log, 5, b"a", kind=COMMIT)
    now_ms = NOW_MS
    for _ in range(3):
        close_range(log)
        compact(log, now_ms=now_ms)
        now_ms += 10_000
        assert control_offsets(log) == [1]
    transact(log, 5, b"a", kind=COMMIT, sequence=1)
    second = log.log_end_offset - 1
    for _ in range(4):
        close_range(log)
        compact(log, now_ms=now_ms)
        now_ms += 10_000
    assert control_offsets(log) == [second]


def test_the_last_marker_of_a_producer_stays_for_its_epoch(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    end_transaction(log, 5, ABORT)
    now_ms = NOW_MS
    for _ in range(4):
        close_range(log)
        compact(log, now_ms=now_ms)
        now_ms += 10_000
    assert control_offsets(log) == [0]
    assert headers(log)[0].record_count == 0
    log.abandon()
    again = place.log(COMPACTED, compacted_end=0)
    entry = again.producers.get(5)
    assert entry is not None
    assert entry.epoch == 0


def test_an_open_transaction_and_what_follows_it_are_not_touched(place: DiskAt) -> None:
    log = place.log(COMPACTED)
    put(log, (b"a", b"0"))
    put(log, (b"a", b"1"))
    put(log, (b"b", b"open"), producer=(5, 0, 0), transactional=True)
    for number in range(10):
        put(log, (b"a", b"more%d" % number))
    log.roll()
    stable = log.last_stable_offset(log.log_end_offset)
    assert compact(log, end_offset_max=stable).end_offset == stable == 2
    assert [record.offset for record in seen(log)] == list(range(1, 13))


keys = st.lists(st.integers(0, 5).map(lambda n: b"k%d" % n), min_size=1, max_size=3)
events = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 3), keys),
        st.tuples(st.integers(1, 3), st.sampled_from([ABORT, COMMIT])),
        st.just("roll"),
        st.just("compact"),
        st.just("restart"),
    ),
    max_size=70,
)


@settings(max_examples=80, deadline=None)
@given(
    events=events,
    map_bytes=st.sampled_from([400, 1_000, 1 << 20]),
    segment_bytes=st.sampled_from([400, 2_000]),
)
def test_readers_of_committed_records_see_the_newest_committed_value_of_each_key(
    events: list[tuple[int, list[bytes] | MarkerType] | str], map_bytes: int, segment_bytes: int
) -> None:
    config, bounds = replace(COMPACTED, segment_bytes=segment_bytes), replace(BOUNDS, map_bytes=map_bytes)
    place, clock = memory_place(), ManualClock()
    log = place.log(config, clock=clock)
    decided: list[Seen] = []
    undecided: dict[int, list[Seen]] = {}
    sequences: dict[int, int] = {}

    def check() -> None:
        visible = [record for record in decided if record.offset < log.last_stable_offset(log.log_end_offset)]
        left = committed(log)
        assert set(left) <= set(visible)
        assert left == sorted(left)
        assert table(left) == table(sorted(visible))

    for event in events:
        match event:
            case "roll":
                log.roll()
            case "compact":
                clock.advance(600)
                compact(
                    log,
                    now_ms=clock.now_ms(),
                    bounds=bounds,
                    end_offset_max=log.last_stable_offset(log.log_end_offset),
                )
                check()
            case "restart":
                log.abandon()
                log = place.log(config, clock=clock, compacted_end=log.compacted_end)
                check()
            case (int(producer_id), list(records)):
                sequence = sequences.get(producer_id, 0)
                first = put(
                    log,
                    *((key, b"%d" % sequence) for key in records),
                    producer=(producer_id, 0, sequence),
                    transactional=True,
                )
                sequences[producer_id] = sequence + len(records)
                undecided.setdefault(producer_id, []).extend(seen(log, first))
            case (int(producer_id), MarkerType() as kind) if producer_id in undecided:
                end_transaction(log, producer_id, kind)
                decided += undecided.pop(producer_id) if kind is COMMIT else []
                undecided.pop(producer_id, None)
    check()
    for producer_id, sequence in sequences.items():
        entry = log.producers.get(producer_id)
        assert entry is not None
        assert entry.last_sequence == sequence - 1
