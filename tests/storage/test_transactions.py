"""Transactions of a whole log against a plain model: what is stable, what was aborted, what readers see.

The model is the list of batches that were stored. Whatever happened to the log, the same must follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.aborted import AbortedBatches
from broker.client.aborted import AbortedTransaction as AbortedFor
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import iterate_batches
from broker.records.control import Marker, MarkerType, build_marker
from broker.records.reader import read_records
from broker.storage.appends import markers_in
from broker.storage.log import Log
from broker.storage.log_config import LogConfig
from broker.storage.memory_disk import MemoryDisk
from broker.storage.partition_check import PartitionToCheck, check_partition
from broker.storage.producers import ProducerStates
from broker.storage.transaction_index import TransactionIndex
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, PARTITION, SIZE_MAX, SMALL, DiskAt, append

PLAIN = -1
TINY = LogConfig(segment_bytes=400, index_interval_bytes=0)


def mark(log: Log, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    """Append a marker; its offset."""
    kind = MarkerType.COMMIT if commit else MarkerType.ABORT
    marker = Marker(type=kind, coordinator_epoch=coordinator_epoch)
    batch = build_marker(marker, producer_id=producer, producer_epoch=epoch, timestamp_ms=NOW_MS)
    return log.append_marker(batch, marker, 0, now_ms=NOW_MS).first_offset


def write(log: Log, producer: int, sequence: int, *values: bytes) -> int:
    """Append a transactional batch; its first offset."""
    return append(log, *values, producer=(producer, 0, sequence), transactional=True)


def whole(log: Log, up_to: int) -> Iterator[bytes]:
    """The log's bytes from its start, as fetches give them."""
    offset = log.log_start_offset
    while offset < up_to:
        part = log.read(offset, max_bytes=1000, up_to=up_to)
        yield part.read()
        offset = part.next_offset


def committed_values(log: Log) -> list[bytes]:
    """What a reader of committed records gets, fetch by fetch."""
    values: list[bytes] = []
    offset, stable = log.log_start_offset, log.last_stable_offset(log.log_end_offset)
    while offset < stable:
        part = log.read(offset, max_bytes=300, up_to=stable)
        found = log.aborted_transactions(offset, part.next_offset)
        aborted = AbortedBatches(AbortedFor(each.producer_id, each.first_offset) for each in found)
        data = part.read()
        for position, header in iterate_batches(data):
            if not aborted.includes(header) and not header.is_control:
                batch = data[position : position + header.size]
                values += [record.value or b"" for record in read_records(batch, header, size_max=SIZE_MAX)]
        offset = part.next_offset
    return values


def known(states: ProducerStates) -> dict[int, tuple[int, int, int, int]]:
    return {
        producer: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
            entry.last_sequence,
        )
        for producer, entry in states
    }


def replayed(log: Log) -> ProducerStates:
    """The producers by the log's bytes alone."""
    states = ProducerStates()
    for data in whole(log, log.log_end_offset):
        markers = markers_in(memoryview(data), list(iterate_batches(data)))
        for position, header in iterate_batches(data):
            states.replay(header, NOW_MS, markers.get(position))
    return states


class Stored(NamedTuple):
    """A batch of the model; `commit` is None for data."""

    first_offset: int
    next_offset: int
    producer: int
    values: tuple[bytes, ...] = ()
    commit: bool | None = None


@dataclass(slots=True)
class Model:
    """All batches, in order."""

    batches: list[Stored] = field(default_factory=list)

    def cut(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= end]

    def sequence(self, producer: int) -> int:
        return sum(len(batch.values) for batch in self.batches if batch.producer == producer)

    def outcomes(self) -> dict[tuple[int, int], Stored | None]:
        """The marker of each transaction by producer and first offset, None while it is open."""
        found: dict[tuple[int, int], Stored | None] = {}
        began: dict[int, int] = {}
        for batch in self.batches:
            if batch.producer == PLAIN:
                continue
            if batch.commit is None:
                first = began.setdefault(batch.producer, batch.first_offset)
                found[batch.producer, first] = None
            elif batch.producer in began:
                found[batch.producer, began.pop(batch.producer)] = batch
        return found

    def stable_offset(self, end: int) -> int:
        return min((first for (_, first), marker in self.outcomes().items() if marker is None), default=end)

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        return {
            (producer, first)
            for (producer, first), marker in self.outcomes().items()
            if marker is not None and not marker.commit and first < end and marker.first_offset >= start
        }

    def committed_values(self, stable: int) -> list[bytes]:
        outcomes, began = self.outcomes(), dict[int, int]()
        values: list[bytes] = []
        for batch in self.batches:
            if batch.next_offset > stable:
                break
            if batch.commit is not None:
                began.pop(batch.producer, None)
            elif batch.producer == PLAIN:
                values += batch.values
            else:
                first = began.setdefault(batch.producer, batch.first_offset)
                marker = outcomes[batch.producer, first]
                if marker is not None and marker.commit:
                    values += batch.values
        return values


steps = st.one_of(
    st.tuples(st.just("write"), st.integers(PLAIN, 3), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("truncate"), st.sampled_from([1, 2, 3, 5, 20]), st.none()),
    st.tuples(st.just("crash"), st.integers(0, 1 << 16), st.none()),
    st.tuples(st.sampled_from(["flush", "kill", "close"]), st.none(), st.none()),
)


class Played:
    """A log and its model, kept alike step by step."""

    def __init__(self) -> None:
        self.place = memory_place()
        self.disk = cast(MemoryDisk, self.place.disk)
        self.log = self.place.log(TINY)
        self.model = Model()

    def step(self, kind: str, first: float, second: float) -> None:
        log, end = self.log, self.log.log_end_offset
        match kind:
            case "write":
                producer, values = int(first), tuple(b"%d" % (end + at) for at in range(int(second)))
                if producer == PLAIN:
                    append(log, *values)
                else:
                    write(log, producer, self.model.sequence(producer), *values)
                self.model.batches.append(Stored(end, log.log_end_offset, producer, values))
            case "end":
                mark(log, int(first), commit=bool(second))
                self.model.batches.append(Stored(end, end + 1, int(first), commit=bool(second)))
            case "truncate":
                log.truncate_to(max(end - int(first), 0))
            case "flush":
                log.flush()
            case "close":
                log.close()
                self.log = self.place.log(TINY, clean=True)
            case "kill":
                self.disk.kill()
                self.log = self.place.log(TINY, recovery_point=log.recovery_point)
            case "crash":
                self.disk.crash(Random(int(first)))
                self.log = self.place.log(TINY, recovery_point=log.recovery_point)
                assert self.log.log_end_offset >= log.recovery_point
        self.model.cut(self.log.log_end_offset)


def check_alike(log: Log, model: Model) -> None:
    end = log.log_end_offset
    stable = log.last_stable_offset(end)
    assert stable == model.stable_offset(end)
    for start in range(0, end, 3):
        for until in (start + 1, start + 5, end):
            found = log.aborted_transactions(start, until)
            assert {(each.producer_id, each.first_offset) for each in found} == model.aborted(start, until)
    assert committed_values(log) == model.committed_values(stable)


@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_whatever_happens_to_a_log_its_transactions_are_those_of_its_batches(
    history: list[tuple[str, float, float]],
) -> None:
    played = Played()
    for kind, first, second in history:
        played.step(kind, first, second)
        check_alike(played.log, played.model)
        assert known(played.log.producers) == known(replayed(played.log))


@settings(deadline=None, max_examples=30)
@given(st.lists(steps.filter(lambda step: step[0] in ("write", "end")), max_size=40), st.integers(100, 2000))
def test_a_follower_has_the_same_transactions(
    history: list[tuple[str, float, float]], fetch_size: int
) -> None:
    played = Played()
    follower = DiskAt(played.place.disk, played.place.path / "follower").log(SMALL)
    for kind, first, second in history:
        played.step(kind, first, second)
    log = played.log
    while follower.log_end_offset < log.log_end_offset:
        part = log.read(follower.log_end_offset, max_bytes=fetch_size, up_to=log.log_end_offset)
        follower.append_as_follower(part.read())
    check_alike(follower, played.model)
    assert known(follower.producers) == known(log.producers)


def test_a_marker_is_fenced_and_then_nothing_is_stored(place: DiskAt) -> None:
    log = place.log()
    write(log, 7, 0, b"a")
    mark(log, 7, commit=True, epoch=2, coordinator_epoch=4)
    for epoch, coordinator_epoch, code in (
        (1, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(ProtocolError) as caught:
            mark(log, 7, commit=True, epoch=epoch, coordinator_epoch=coordinator_epoch)
        assert caught.value.code is code
    assert log.log_end_offset == 2


def test_a_marker_that_is_not_committed_keeps_the_last_stable_offset_back(place: DiskAt) -> None:
    log = place.log()
    append(log, b"plain")
    write(log, 7, 0, b"a", b"b")
    assert mark(log, 7, commit=True) == 3
    assert [log.last_stable_offset(high_watermark) for high_watermark in range(5)] == [0, 1, 1, 1, 4]


def test_the_last_stable_offset_is_not_below_the_start_of_the_log(place: DiskAt) -> None:
    log = place.log()
    write(log, 7, 0, b"a", b"b")
    append(log, b"plain")
    log.advance_start(2)
    assert log.last_stable_offset(3) == 2


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["torn", "version", "order"])
def test_a_damaged_index_of_aborted_transactions_is_made_anew(
    place: DiskAt, damage: str, is_clean: bool
) -> None:
    log = place.log(TINY)
    for number in range(12):
        write(log, 7, number, b"value")
        mark(log, 7, commit=False)
    log.close()
    sound = {name: data for name, data in place.files().items() if name.endswith(".txnindex")}
    assert len(sound) > 2
    for name, data in sound.items():
        match damage:
            case "torn":
                place.overwrite(name, b"\1" * (len(data) - 1))
            case "version":
                place.overwrite(name, b"\0\1" + data[2:])
            case "order":
                place.overwrite(name, data + data)
    reopened = place.log(TINY, clean=is_clean, recovery_point=log.log_end_offset)
    assert [each.first_offset for each in reopened.aborted_transactions(0, 24)] == list(range(0, 24, 2))
    reopened.close()
    assert {name: data for name, data in place.files().items() if name.endswith(".txnindex")} == sound


def test_segments_without_aborted_transactions_have_no_index(place: DiskAt) -> None:
    log = place.log(TINY)
    for number in range(12):
        write(log, 7, number, b"value")
        mark(log, 7, commit=number != 6)
    log.close()
    names = [name for name in place.files() if name.endswith(".txnindex")]
    assert len(names) == 1


def test_an_index_of_aborted_transactions_that_belies_the_log_is_found(place: DiskAt) -> None:
    log = place.log(LogConfig())
    for number in range(4):
        write(log, 7, number * 2, b"a")
        append(log, b"plain")
        write(log, 7, number * 2 + 1, b"b")
        mark(log, 7, commit=number == 2)
    log.close()
    name = "00000000000000000000.txnindex"
    (sound,) = [data for file, data in place.files().items() if file == name]
    entry = TransactionIndex.entry
    first, rest = sound[: entry.size], sound[entry.size :]
    for lying, message in (
        (sound, None),
        (first, "the transaction of producer 7 from offset 4, aborted at offset 7, is missing"),
        (entry.pack(0, 8, 0, 3, 4) + rest, "no abort marker of producer 8 is at offset 3"),
        (entry.pack(0, 7, 1, 3, 4) + rest, "has records from offset 0, not 1"),
        (sound + entry.pack(0, 7, 8, 11, 12), "no abort marker of producer 7 is at offset 11"),
    ):
        place.overwrite(name, lying)
        partition = PartitionToCheck(disk=place.disk, path=place.path / str(PARTITION))
        found = [problem.message for problem in check_partition(partition) if problem.path.name == name]
        assert (not found) if message is None else any(message in each for each in found), found
