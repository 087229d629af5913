"""The index of aborted transactions: Kafka's bytes, searches, cuts, and the segment that owns it."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import StorageError
from broker.storage.index import IndexCache
from broker.storage.open_files import FilePool
from broker.storage.segment import Segment
from broker.storage.transaction_index import TransactionIndex, overlapping
from broker.storage.transactions import AbortedTransaction
from tests.storage.conftest import memory_place
from tests.storage.samples import NOW_MS, DiskAt

ENTRY = Struct(">hqqqq")
NAME = "00000000000000000000.txnindex"


def index_at(place: DiskAt, base_offset: int = 0) -> TransactionIndex:
    index = TransactionIndex(
        FilePool(place.disk), IndexCache(), place.path, f"{base_offset:020d}.txnindex", base_offset
    )
    index.start_over()
    return index


def segment_at(place: DiskAt) -> Segment:
    return Segment.create(
        FilePool(place.disk), IndexCache(), place.path, 0, index_interval_bytes=0, now_ms=NOW_MS
    )


def names(place: DiskAt) -> list[str]:
    return [entry.name for entry in place.disk.list_directory(place.path)]


def test_the_file_is_kafkas_and_written_at_once(place: DiskAt) -> None:
    index = index_at(place)
    index.append(AbortedTransaction(7, 3, 9, 10))
    index.append(AbortedTransaction(8, 5, 12, 11))
    written = place.disk.read_file(place.path / NAME)
    assert written == ENTRY.pack(0, 7, 3, 9, 10) + ENTRY.pack(0, 8, 5, 12, 11)


def test_a_sealed_index_is_read_back(place: DiskAt) -> None:
    index = index_at(place)
    entries = [AbortedTransaction(7, at * 10, at * 10 + 5, at * 10 + 6) for at in range(20)]
    for entry in entries:
        index.append(entry)
    index.seal()
    assert list(index.transactions()) == entries
    assert list(index.transactions(106)) == entries[11:]
    assert index.count_below(105) == 10


def test_an_index_that_lost_entries_answers_nothing(place: DiskAt) -> None:
    index = index_at(place)
    for at in range(3):
        index.append(AbortedTransaction(7, at * 10, at * 10 + 5, at * 10 + 6))
    index.seal()
    whole = place.disk.read_file(place.path / NAME)
    for size in range(len(whole)):
        file = place.disk.open(place.path / NAME)
        file.truncate(size)
        file.close()
        with pytest.raises(StorageError, match="a start of the node makes it anew"):
            list(index.transactions())
        place.disk.write_file(place.path / NAME, whole)


def test_an_implausible_index_is_seen() -> None:
    place = memory_place()
    for entries in (
        [AbortedTransaction(7, 9, 9, 10)],
        [AbortedTransaction(7, -1, 9, 10)],
        [AbortedTransaction(7, 3, 100, 101)],
        [AbortedTransaction(7, 3, 9, 10), AbortedTransaction(8, 3, 9, 10)],
        [AbortedTransaction(7, 3, 9, 10), AbortedTransaction(8, 3, 12, 4)],
    ):
        index = index_at(place)
        for entry in entries:
            index.append(entry)
        assert not index.plausible(100)
    index = index_at(place)
    index.append(AbortedTransaction(7, 3, 9, 10))
    assert index.plausible(100)
    place.disk.write_file(place.path / NAME, ENTRY.pack(1, 7, 3, 9, 10))
    assert not TransactionIndex(FilePool(place.disk), IndexCache(), place.path, NAME, 0).plausible(100)


def test_a_segment_without_aborts_has_no_index_and_an_old_one_goes(place: DiskAt) -> None:
    place.disk.write_file(place.path / NAME, b"of an earlier life")
    segment = segment_at(place)
    segment.seal()
    assert NAME not in names(place)
    assert len(segment.files()) == 3
    segment.note_aborted(AbortedTransaction(7, 3, 9, 10))
    assert NAME in names(place)
    assert segment.files()[3].path == place.path / NAME
    segment.forget_aborted()
    assert NAME not in names(place)
    segment.retire()


def test_an_index_shares_the_suffix_of_its_segment() -> None:
    place = memory_place()
    pool, cache = FilePool(place.disk), IndexCache()
    for suffix in ("", ".cleaned", ".swap"):
        offsets = TransactionIndex(pool, cache, Path("/data"), f"00000000000000000042.index{suffix}", 42)
        beside = TransactionIndex.beside(offsets)
        assert beside.file.path == Path(f"/data/00000000000000000042.txnindex{suffix}")


def test_a_segment_that_is_deleted_takes_its_index_along(place: DiskAt) -> None:
    segment = segment_at(place)
    segment.note_aborted(AbortedTransaction(7, 3, 9, 10))
    renamed = segment.mark_deleted(place.disk)
    assert sorted(path.name for path in renamed) == names(place)
    assert f"{NAME}.deleted" in names(place)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborts as a log yields them, some transactions staying open meanwhile."""
    aborted, open_since, offset = [], dict[int, int](), 0
    for producer in draw(st.lists(st.integers(0, 3), max_size=40)):
        if producer in open_since:
            first = open_since.pop(producer)
            stable = min(open_since.values(), default=offset + 1)
            aborted.append(AbortedTransaction(producer, first, offset, stable))
        else:
            open_since[producer] = offset
        offset += draw(st.integers(1, 3))
    return aborted


@given(histories(), st.integers(0, 100), st.integers(0, 40), st.integers(1, 10))
def test_a_search_finds_what_overlaps_and_nothing_else(
    history: list[AbortedTransaction], start: int, length: int, per_segment: int
) -> None:
    place, end = memory_place(), start + length
    indexes: list[TransactionIndex | None] = []
    for at in range(0, len(history), per_segment):
        part = history[at : at + per_segment]
        index = index_at(place, part[0].last_offset)
        for aborted in part:
            index.append(aborted)
        index.seal()
        indexes += [index, None]
    found = overlapping(indexes, start, end)
    assert found == [
        aborted for aborted in history if aborted.last_offset >= start and aborted.first_offset < end
    ]
