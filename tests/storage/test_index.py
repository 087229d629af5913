"""Both indexes against models, in memory, on disk and through the cache."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from struct import Struct

from hypothesis import given
from hypothesis import strategies as st

from broker.storage.index import WRITE_OUT_BYTES, IndexCache, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from broker.storage.open_files import FilePool
from tests.storage.conftest import memory_place
from tests.storage.samples import DiskAt

BASE = 1000


def offset_index(place: DiskAt, cache: IndexCache | None = None) -> OffsetIndex:
    index = OffsetIndex(FilePool(place.disk), cache or IndexCache(), place.path, "a.index", BASE)
    index.activate()
    return index


def time_index(place: DiskAt) -> TimeIndex:
    index = TimeIndex(FilePool(place.disk), IndexCache(), place.path, "a.timeindex", BASE)
    index.activate()
    return index


steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=40)


def ascending(gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    entries, offset, position = [], BASE, 0
    for offset_gap, position_gap in gaps:
        offset, position = offset + offset_gap, position + position_gap
        entries.append((offset, position))
    return entries


def test_entries_are_stored_as_kafka_does(place: DiskAt) -> None:
    index = offset_index(place)
    index.append(BASE + 7, 4096)
    index.append(BASE + 20, 9000)
    index.seal()
    assert place.disk.read_file(place.path / "a.index") == Struct(">iiii").pack(7, 4096, 20, 9000)
    times = time_index(place)
    times.append_if_later(1_700_000_000_000, BASE + 7)
    times.append_if_later(1_700_000_000_000, BASE + 9)
    times.seal()
    assert place.disk.read_file(place.path / "a.timeindex") == Struct(">qi").pack(1_700_000_000_000, 7)


@given(steps, st.booleans(), st.integers(BASE - 10, BASE + 2100))
def test_offset_lookups_agree_with_a_model(gaps: list[tuple[int, int]], sealed: bool, target: int) -> None:
    entries = ascending(gaps)
    index = offset_index(memory_place())
    for offset, position in entries:
        index.append(offset, position)
    if sealed:
        index.seal()
    assert index.count == len(entries)
    assert index.floor(target) == max((e for e in entries if e[0] <= target), default=None)
    position = target - BASE
    assert index.floor_position(position) == max((e for e in entries if e[1] <= position), default=None)
    assert index.count_below(position) == sum(e[1] < position for e in entries)
    assert index.last() == (entries[-1] if entries else None)


@given(steps, st.booleans(), st.integers(-1, 2100))
def test_time_lookups_agree_with_a_model(gaps: list[tuple[int, int]], sealed: bool, target: int) -> None:
    entries = [TimeEntry(time, offset) for offset, time in ascending(gaps)]
    index = time_index(memory_place())
    for entry in entries:
        index.append_if_later(*entry)
    if sealed:
        index.seal()
    assert index.before(target) == max((e for e in entries if e.timestamp < target), default=None)
    assert index.count_below(target + BASE) == sum(e.offset < target + BASE for e in entries)
    assert index.last() == (entries[-1] if entries else None)


def test_an_entry_needs_a_later_time(place: DiskAt) -> None:
    index = time_index(place)
    index.append_if_later(-1, BASE)
    index.append_if_later(50, BASE + 1)
    index.append_if_later(40, BASE + 2)
    index.append_if_later(50, BASE + 3)
    index.append_if_later(51, BASE + 4)
    assert index.count == 2
    index.keep(1)
    index.append_if_later(51, BASE + 5)
    assert index.last() == (51, BASE + 5)


@given(steps, st.data())
def test_a_cut_index_goes_on_where_it_was_cut(gaps: list[tuple[int, int]], data: st.DataObject) -> None:
    entries = ascending(gaps)
    place = memory_place()
    index = offset_index(place)
    for entry in entries:
        index.append(*entry)
    if data.draw(st.booleans()):
        index.write_out()
    kept = data.draw(st.integers(0, len(entries)))
    index.keep(kept)
    index.append(BASE + 5000, 5000)
    index.seal()
    again = offset_index(place)
    assert again.count == kept + 1
    assert again.last() == (BASE + 5000, 5000)
    if kept:
        assert again.floor(entries[kept - 1][0]) == entries[kept - 1]


def test_waiting_entries_are_written_some_at_a_time(place: DiskAt) -> None:
    index = offset_index(place)
    for number in range(1000):
        index.append(BASE + number, number)
        written = len(place.disk.read_file(index.file.path)) if place.disk.exists(index.file.path) else 0
        assert 8 * (number + 1) - written < WRITE_OUT_BYTES
    index.write_out()
    assert len(place.disk.read_file(place.path / "a.index")) == 8000


def test_files_of_partitions_that_fill_alike_are_not_made_at_one_moment(place: DiskAt) -> None:
    pool, cache = FilePool(place.disk), IndexCache()
    indexes = [OffsetIndex(pool, cache, place.path / f"p-{each}", "0.index", 0) for each in range(100)]
    for index in indexes:
        place.disk.make_directory(index.file.path.parent)
        index.start_over()
    made: list[int] = []
    for number in range(WRITE_OUT_BYTES // 8):
        for index in indexes:
            index.append(number, number)
        made.append(sum(place.disk.exists(index.file.path) for index in indexes))
    assert made[WRITE_OUT_BYTES // 16 - 2] == 0
    assert made[-1] == 100
    assert max(after - before for before, after in pairwise(made)) <= 5


def test_a_torn_entry_does_not_count(place: DiskAt) -> None:
    place.disk.write_file(place.path / "a.index", Struct(">iii").pack(7, 4096, 20))
    index = offset_index(place)
    assert index.count == 1
    assert index.last() == OffsetEntry(BASE + 7, 4096)


def test_an_index_that_points_beyond_its_log_is_not_plausible(place: DiskAt) -> None:
    index = offset_index(place)
    assert index.plausible(0)
    index.append(BASE + 3, 100)
    assert index.plausible(101)
    assert not index.plausible(100)
    place.disk.write_file(place.path / "a.index", Struct(">iiii").pack(7, 4096, -20, 9000))
    assert not offset_index(place).plausible(1 << 20)


def test_the_cache_is_bounded_in_bytes() -> None:
    cache = IndexCache(bytes_max=100)
    loads = []

    def load(name: str, size: int) -> bytes:
        loads.append(name)
        return bytes(size)

    for name in ("a", "b", "a", "c", "a", "b"):
        cache.get(Path(name), lambda name=name: load(name, 40))  # type: ignore[misc]
        assert cache.size <= 100
    assert loads == ["a", "b", "c", "b"]
    assert len(cache.get(Path("huge"), lambda: load("huge", 500))) == 500
    assert cache.size <= 100
    cache.drop(Path("b"))
    cache.get(Path("b"), lambda: load("b", 40))
    assert loads[-1] == "b"
