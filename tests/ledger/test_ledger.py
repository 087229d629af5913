"""The ledger under random copies, crashes and aborts: what it says is what is there, both ways."""

from __future__ import annotations

import json
import time
from array import array
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.types import TopicPartition
from mirrormaker.audit.lane_runs import passes_of, severed_passes_of
from mirrormaker.audit.ranges import Range, joined
from mirrormaker.flow.books import EpochMark, ReadSoFar
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.read_epochs import EpochStart, ReadEpochs
from mirrormaker.flow.returned import Returned
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.lane_map import LaneMap, Standing, Translation
from mirrormaker.ledger.packed_runs import PackedRuns
from mirrormaker.ledger.page import RUNS_MAX, Page
from mirrormaker.ledger.page_windows import WINDOWS_KEPT, LaneTime, PageWindows
from mirrormaker.ledger.recorder import Due, LedgerRecorder
from mirrormaker.ledger.upkeep import upkeep_records
from mirrormaker.ledger.view import LedgerView

SOURCE = TopicPartition("flights", 3)
DESTINATION = TopicPartition("jfk.flights", 3)
LANE = LaneId("cluster-a", "flights", None, 3, "jfk.flights", 3)


@dataclass
class Mirror:
    """A copy of one partition: the truth at the destination, and the ledger beside it."""

    start: int = 0
    destination: list[int | None] = field(default_factory=list)
    """Source offset of each record; None: not one of ours."""
    filter: dict[int, bool] = field(default_factory=dict)
    """What becomes of an offset, whenever it is read."""
    position: int = 0
    committed: int = 0
    span_ms: int = 10_000
    """Of windows; a record's time is its offset."""
    recorder: LedgerRecorder = field(init=False)
    view: LedgerView = field(default_factory=LedgerView)
    recorded: int = 0
    last_start: int = 0
    is_untold: bool = False
    crashes: int = 0
    lost: set[int] = field(default_factory=set)
    """Offsets of which a crash left copies that the ledger never told of."""

    def __post_init__(self) -> None:
        self.position = self.committed = self.recorded = self.last_start = self.start
        self.windows = PageWindows(span_ms=self.span_ms, now_ms=lambda: self.position)
        self.epoch = 1
        """Of the source, of what is copied from now on."""
        self.recorder = LedgerRecorder("first", windows=self.windows)
        self.begin(self.start)

    def begin(self, position: int) -> None:
        self.epochs, self.returned = ReadEpochs(position, -1), Returned()
        self.recorder.begin(LANE, position, ReadSoFar(self.epochs, self.returned))

    def copy(self, kept: list[bool], *, is_told: bool = True) -> None:
        """A chunk of the source, of which some records are kept."""
        offsets = [
            offset
            for offset, is_kept in enumerate(kept, self.position)
            if self.filter.setdefault(offset, is_kept)
        ]
        self.read(len(kept))
        self.is_untold |= not is_told
        self.take(offsets, is_told=is_told, is_whole=all(kept))

    def copy_parted(self, count: int) -> None:
        """A chunk of which the destination had the first record, when somebody else wrote one, and then took
        the rest: it does not say where.
        """
        offsets = range(self.position, self.position + count)
        self.read(count)
        self.is_untold = True
        kept = [offset for offset in offsets if self.filter.setdefault(offset, True)]
        self.take(kept, is_told=False, is_parted=True)

    def read(self, count: int) -> None:
        end = self.position + count
        self.epochs.read(self.position, end, self.epoch, memoryview(b""))
        self.position = end

    def take(
        self, offsets: list[int], *, is_told: bool = True, is_whole: bool = False, is_parted: bool = False
    ) -> None:
        """Records of these source offsets arrive."""
        base = len(self.destination)
        self.destination += [*offsets[:1], None, *offsets[1:]] if is_parted else offsets
        if offsets:
            self.position = max(self.position, offsets[-1] + 1)
            runs = _runs(offsets)
            self.recorder.take(
                Copied(
                    source=SOURCE,
                    first=offsets[0],
                    next=offsets[-1] + 1,
                    destination=DESTINATION,
                    base_offset=base if is_told else None,
                    count=len(offsets),
                    crc=sum(offsets) * 7919,
                    source_crc=sum(offsets) * 104729 if is_whole else None,
                    max_timestamp=offsets[-1],
                    append_time_ms=None,
                    origin=0,
                    runs=() if len(runs) == 1 else runs,
                )
            )
        self.recorder.advance({SOURCE: (self.position,)})

    def marker(self) -> None:
        self.destination.append(None)

    def write(self) -> Due:
        due = self.recorder.due()
        for key, value in due.records:
            self.view.apply(encode_document(key), None if value is None else encode_document(value))
        return due

    def settle(self) -> None:
        self.recorder.settled(self.write())
        self.recorded = max(self.recorded, self.position)

    def commit(self) -> None:
        self.committed = max(self.committed, min(self.recorded, self.position))

    def crash(self, *, writes: bool) -> None:
        """What is in memory is gone; the ledger may have been written just before."""
        if writes:
            self.write()
            self.recorded = max(self.recorded, self.position)
        elif self.recorder.due().records:
            self.lost.add(self.position)
        self.crashes += 1
        self.recorder = LedgerRecorder(str(self.crashes), windows=self.windows)
        self.begin(self.committed)
        self.position = self.last_start = self.committed

    def keep_up(self) -> None:
        for key, value in upkeep_records(LANE, self.ledger, 0, self.windows):
            self.view.apply(encode_document(key), None if value is None else encode_document(value))

    @property
    def ledger(self) -> LaneLedger:
        return self.view.lanes.get(LANE, LaneLedger())


def _runs(offsets: list[int]) -> tuple[SourceRun, ...]:
    runs: list[SourceRun] = []
    for offset in offsets:
        if runs and runs[-1].first + runs[-1].length == offset:
            runs[-1] = SourceRun(runs[-1].first, runs[-1].length + 1)
        else:
            runs.append(SourceRun(offset, 1))
    return tuple(runs)


CHUNKS = st.one_of(
    st.integers(1, 9).map(lambda count: [True] * count),
    st.lists(st.booleans(), min_size=1, max_size=12),
)
CALM_STEPS = st.one_of(
    st.tuples(st.just("copy"), CHUNKS),
    st.tuples(st.sampled_from(["marker", "settle", "commit"]), st.none()),
)
STEPS = st.one_of(
    CALM_STEPS,
    CALM_STEPS,
    CALM_STEPS,
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("keep_up"), st.none()),
    st.tuples(st.just("copy_untold"), CHUNKS),
    st.tuples(st.just("copy_parted"), st.integers(2, 5)),
)


def perform(mirror: Mirror, steps: list[tuple[str, object]]) -> None:
    for name, argument in steps:
        match name, argument:
            case "copy", list(kept):
                mirror.copy(kept)
            case "copy_untold", list(kept):
                mirror.copy(kept, is_told=False)
            case "copy_parted", int(count):
                mirror.copy_parted(count)
            case "crash", bool(writes):
                mirror.crash(writes=writes)
            case "keep_up", _:
                mirror.settle()
                mirror.keep_up()
            case _:
                getattr(mirror, name)()
    mirror.settle()


@given(st.integers(0, 50), st.lists(CALM_STEPS, max_size=40))
def test_without_a_crash_every_offset_is_translated_to_the_record_itself_and_back(
    start: int, steps: list[tuple[str, object]]
) -> None:
    mirror = Mirror(start + 1, span_ms=8)
    start += 1
    perform(mirror, steps)
    ledger, there = mirror.ledger, mirror.destination
    if mirror.position == start or not any(each is not None for each in there):
        return
    for offset in range(start, mirror.position + 1):
        told = ledger.forward(offset)
        assert told.is_exact
        assert told.offset is not None
        behind = [each for each in there[: told.offset] if each is not None]
        assert all(each < offset for each in behind)
        assert all(each is None or each >= offset for each in there[told.offset :])
        if told.standing is Standing.COPIED:
            assert there[told.offset] == offset
    for at in range(len(there) + 1):
        back = ledger.back(at)
        if back.offset is None:
            assert back.standing is Standing.BEFORE
            assert not any(there[:at])
            continue
        assert all(each is None or each < back.offset for each in there[:at])
        assert all(each is None or each >= back.offset for each in there[at:])
    assert ledger.forward(start - 1).standing is Standing.BEFORE
    assert ledger.forward(mirror.position).standing is Standing.END
    assert ledger.forward(mirror.position + 5).standing is Standing.BEYOND


@given(st.lists(STEPS, max_size=40))
def test_whatever_crashes_nobody_who_goes_on_at_a_translated_offset_misses_a_record(
    steps: list[tuple[str, object]],
) -> None:
    mirror = Mirror(10, span_ms=8)
    perform(mirror, steps)
    ledger, there = mirror.ledger, mirror.destination
    recorded = {each for each in there if each is not None and each < mirror.recorded}
    for offset in range(mirror.recorded + 3):
        told = ledger.forward(offset)
        if told.offset is not None:
            seen = [each for each in there[told.offset :] if each is not None]
            assert {each for each in recorded if each >= offset} <= set(seen)
            has_caught_up = mirror.position == mirror.recorded and not mirror.is_untold
            if told.is_exact and has_caught_up and mirror.last_start <= offset <= mirror.recorded:
                assert all(seen.count(each) == 1 for each in seen if each >= offset)
    for at in range(len(there) + 1):
        back = ledger.back(at)
        if back.offset is not None:
            had = {each for each in there[:at] if each is not None}
            assert {each for each in recorded if each < back.offset} <= had
            if back.is_exact and not mirror.lost:
                assert all(each < back.offset for each in had)


@given(st.lists(STEPS, max_size=40))
def test_counts_and_sums_are_those_of_what_is_there(steps: list[tuple[str, object]]) -> None:
    mirror = Mirror(span_ms=8)
    perform(mirror, steps)
    for page in mirror.ledger.pages():
        if page.to_first is None or page.to_next is None or any(run.to < 0 for run in page.runs()):
            continue
        there = [each for each in mirror.destination[page.to_first : page.to_next] if each is not None]
        assert page.count == len(there)
        assert page.crc == sum(there) * 7919
        assert page.source_crc in (None, sum(there) * 104729)


@given(st.lists(STEPS, max_size=40))
def test_a_page_is_what_it_was_after_it_was_written_and_read(steps: list[tuple[str, object]]) -> None:
    mirror = Mirror(span_ms=8)
    perform(mirror, steps)
    for page in mirror.ledger.pages():
        again = Page.of(json.loads(json.dumps(page.value(3))))
        assert again.value(3) == page.value(3)
        assert list(again.runs()) == list(page.runs())


def test_a_partition_copied_as_it_is_has_one_page_with_one_run_however_long() -> None:
    mirror = Mirror()
    for _ in range(500):
        mirror.copy([True] * 7)
        mirror.settle()
    (page,) = mirror.ledger.pages()
    assert page.value(3) == {
        "from": [0, 3500],
        "to": [3, 0, 3500],
        "count": 3500,
        "crc": page.crc,
        "source_crc": page.source_crc,
        "times": [6, 3499],
        "epoch": [3500, 1],
        "epochs": [[0, 1]],
    }


def test_pages_are_bounded_and_those_that_fit_together_are_merged_by_upkeep() -> None:
    mirror = Mirror()
    for _ in range(3 * RUNS_MAX):
        mirror.copy([True, False])
    mirror.settle()
    assert [len(page) for page in mirror.ledger.pages()] == [RUNS_MAX] * 3
    assert mirror.ledger.forward(1001).offset == 501

    restarted = Mirror()
    for _ in range(9):
        restarted.copy([True] * 5)
        restarted.settle()
        restarted.commit()
        restarted.crash(writes=False)
    before = len(restarted.ledger)
    for _ in range(4):
        restarted.keep_up()
    assert before == 9
    assert len(restarted.ledger) == 2
    assert [restarted.ledger.forward(at).offset for at in (0, 17, 44, 45)] == [0, 17, 44, 45]


def test_pages_tell_where_records_came_back_from_the_destination() -> None:
    mirror = Mirror()
    mirror.copy([True] * 5)
    for count in (4, 3):
        mirror.returned.read(mirror.position, mirror.position + count)
        mirror.copy([False] * count)
        mirror.copy([True] * 2)
    mirror.settle()
    mirror.commit()
    mirror.crash(writes=False)
    mirror.returned.read(16, 18)
    mirror.copy([False] * 2)
    mirror.settle()
    assert [page.returned for page in mirror.ledger.pages()] == [(5, 14), (16, 18)]
    assert sorted(mirror.ledger.came_back(0, 100)) == [(5, 9), (11, 14), (16, 18)]
    assert sorted(mirror.ledger.came_back(8, 12)) == [(8, 9), (11, 12)]
    (first, last) = mirror.ledger.pages()
    assert Page.of(json.loads(json.dumps(first.value(3)))).returned == (5, 14)
    assert (first.part(8, 12).returned, first.part(0, 5).returned) == ((8, 12), None)
    joined = Page.of(first.value(3))
    joined.absorb(last)
    assert joined.returned == (5, 18)


def test_what_came_back_in_a_log_that_is_gone_is_not_told_of_the_one_in_its_place() -> None:
    mirror = Mirror()
    mirror.copy([True] * 5)
    mirror.returned.read(5, 9)
    mirror.copy([False] * 4)
    mirror.settle()
    mirror.recorder.restart(SOURCE, (6,), {LANE: 5})
    mirror.returned.cut(6)
    mirror.position = 6
    mirror.copy([True] * 4)
    mirror.settle()
    assert mirror.ledger.came_back(0, 100) == [(5, 6)]


def test_pages_that_the_source_has_nothing_of_any_more_are_deleted() -> None:
    mirror = Mirror()
    for _ in range(2 * RUNS_MAX + 1):
        mirror.copy([False, True])
    mirror.settle()
    records = list(upkeep_records(LANE, mirror.ledger, 2 * RUNS_MAX + 3, mirror.windows))
    assert [value for _, value in records] == [None]
    for key, _ in records:
        mirror.view.apply(encode_document(key), None)
    assert mirror.ledger.forward(5) == mirror.ledger.forward(0)
    assert mirror.ledger.forward(5).offset is None
    assert mirror.ledger.forward(2 * RUNS_MAX + 5).offset == RUNS_MAX + 2


def test_pages_of_another_route_are_neither_joined_nor_deleted() -> None:
    ledger = LaneLedger()
    for first in range(0, 60, 10):
        page = Page(first, route="mine" if first < 30 else "another's")
        page.add_run(first, 100 + first, 10)
        ledger.put(Page.of(page.value(0)))
    mine = list(upkeep_records(LANE, ledger, 0, Mirror().windows, "mine"))
    assert [(key["at"], None if value is None else value["from"]) for key, value in mine] == [
        (0, [0, 20]),
        (10, None),
    ]
    assert [key["at"] for key, _ in upkeep_records(LANE, ledger, 60, Mirror().windows, "another's")] == [
        30,
        40,
    ]


@pytest.mark.parametrize("skipped", [0, 3])
def test_what_upkeep_that_is_killed_at_any_write_leaves_twice_is_deleted_by_the_next(skipped: int) -> None:
    """`skipped`: records that are filtered at the beginning of each page."""
    for writes in range(9):
        mirror = Mirror()
        for _ in range(9):
            mirror.copy([False] * skipped + [True] * 5)
            mirror.settle()
            mirror.commit()
            mirror.crash(writes=False)
        for key, value in list(upkeep_records(LANE, mirror.ledger, 0, mirror.windows))[:writes]:
            mirror.view.apply(encode_document(key), None if value is None else encode_document(value))
        for _ in range(5):
            mirror.keep_up()
        pages = mirror.ledger.pages()
        assert [page.next for page in pages] == [8 * (skipped + 5), 9 * (skipped + 5)]
        assert sum(page.count for page in pages) == 45
        assert len(passes_of(pages)) == 1


def test_a_page_of_records_that_were_copied_twice_is_kept() -> None:
    ledger = LaneLedger()
    for first, to, length in ((0, 0, 200), (100, 200, 100), (200, 300, 10)):
        page = Page(first)
        page.add_run(first, to, length)
        ledger.put(Page.of(page.value(0)))
    assert list(upkeep_records(LANE, ledger, 0, Mirror().windows)) == []


def test_whoever_is_among_records_that_were_copied_once_more_has_certainly_all_of_them() -> None:
    """As after a seek: they are not beyond what is known."""
    ledger = LaneLedger()
    for first, to, length in ((0, 0, 100), (50, 100, 50)):
        page = Page(first)
        page.add_run(first, to, length)
        ledger.put(Page.of(page.value(0)))
    told = [ledger.back(at) for at in (99, 100, 101, 130, 150, 151)]
    ends = [Translation(offset=100, standing=Standing.END)] * 4
    assert told[0] == Translation(offset=99, standing=Standing.COPIED)
    assert told[1:5] == ends
    assert told[5] == Translation(offset=100, standing=Standing.BEYOND, is_exact=False)


@pytest.mark.parametrize(
    ("runs", "is_held"),
    [
        ([(100, 50, 20)], True),
        ([(100, 50, 20), (140, 80, 10)], True),
        ([(100, 50, 20), (140, None, 10)], False),
        ([(100, 51, 20)], False),
        ([(95, 50, 10)], False),
        ([(110, 60, 20)], False),
        ([(150, None, 5)], True),
        ([(150, None, 4)], False),
        ([(150, 90, 5)], False),
        ([], True),
    ],
)
def test_a_page_holds_another_all_of_whose_runs_it_has(
    runs: list[tuple[int, int | None, int]], is_held: bool
) -> None:
    page = Page(0)
    for source, to, length in ((0, 0, 50), (100, 50, 25), (140, 80, 10), (150, None, 5)):
        page.add_run(source, to, length)
    other = Page(90)
    for run in runs:
        other.add_run(*run)
    assert page.holds(other) is is_held
    other.cover(page.next + 1)
    assert not page.holds(other)


def test_a_source_that_lost_its_end_is_told_apart_from_one_copied_twice() -> None:
    mirror = Mirror()
    mirror.copy([True] * 10)
    mirror.settle()
    mirror.recorder.restart(SOURCE, (6,), {})
    mirror.position = 6
    mirror.copy([True] * 3)
    mirror.settle()
    assert [mirror.ledger.forward(at).offset for at in (5, 6, 8, 9)] == [5, 10, 12, 13]
    assert [mirror.ledger.back(at).offset for at in (6, 8, 10, 12, 13)] == [6, 6, 6, 8, 9]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_source_that_lost_its_end_is_told_before_anything_of_the_rest_was_copied(is_killed: bool) -> None:
    """Nor does it matter who copies what comes then."""
    mirror = Mirror()
    mirror.copy([True] * 10)
    mirror.settle()
    mirror.recorder.restart(SOURCE, (6,), {})
    mirror.position = 6
    mirror.filter |= {6: False, 7: False}
    mirror.copy([False] * 2)
    mirror.settle()
    assert [mirror.ledger.forward(at).offset for at in (5, 6, 7)] == [5, 10, 10]
    if is_killed:
        mirror.committed = 8
        mirror.crash(writes=False)
    mirror.copy([True] * 3)
    mirror.settle()
    assert [mirror.ledger.forward(at).offset for at in (5, 6, 8, 10)] == [5, 10, 10, 12]
    for passes, known in ((passes_of, [Range(0, 6), Range(8, 11)]), (severed_passes_of, [Range(6, 10)])):
        copied = (part for each in passes(mirror.ledger.pages()) for part in each.copied_parts(Range(0, 99)))
        assert joined(copied) == known


def reached(mirror: Mirror) -> tuple[int, EpochMark | None]:
    known = mirror.ledger.reached(None)
    assert known is not None
    return known.next, known.mark


def test_of_what_epochs_the_copied_records_are_is_known_until_the_source_is_another_log() -> None:
    mirror = Mirror()
    mirror.epoch = -1
    mirror.copy([True] * 4)
    mirror.settle()
    assert reached(mirror) == (4, None)
    mirror.epoch = 5
    mirror.copy([True] * 4)
    mirror.settle()
    mirror.epoch = -1
    mirror.copy([False] * 2)
    mirror.settle()
    assert reached(mirror) == (10, (8, 5))
    mirror.epoch = 7
    mirror.marker()
    mirror.copy([True])
    mirror.settle()
    assert reached(mirror) == (11, (11, 7))
    mirror.epochs.cut(6)
    mirror.recorder.restart(SOURCE, (6,), {})
    mirror.position, mirror.epoch = 6, -1
    mirror.copy([True])
    mirror.settle()
    assert reached(mirror) == (7, None)
    mirror.epoch = 8
    mirror.copy([True])
    mirror.settle()
    assert reached(mirror) == (8, (8, 8))


@pytest.mark.parametrize("end", [0, 4, 6])
def test_a_source_that_lost_its_end_is_known_to_whoever_begins_before_anything_more_is_copied(
    end: int,
) -> None:
    """Wherever pages began: also where all that is known is of a log that is gone."""
    mirror = Mirror()
    mirror.copy([True] * 6)
    mirror.settle()
    mirror.committed = 6
    mirror.crash(writes=False)
    mirror.copy([True] * 4)
    mirror.settle()
    mirror.epochs.cut(end)
    mirror.recorder.restart(SOURCE, (end,), {LANE: 6})
    mirror.recorder.advance({SOURCE: (end,)})
    mirror.settle()
    assert mirror.ledger.next == end
    assert reached(mirror) == (end, None)
    mirror.committed = end
    mirror.crash(writes=False)
    mirror.copy([True] * 2)
    mirror.settle()
    assert reached(mirror) == (end + 2, (end + 2, 1))
    assert [mirror.ledger.forward(end + at).offset for at in range(3)] == [10, 11, 12]


def test_where_epochs_begin_is_known_however_pages_are_parted_until_the_source_is_another_log() -> None:
    mirror = Mirror()
    for epoch in (1, 4, 4, 5):
        mirror.epoch = epoch
        mirror.copy([True, False, True])
        mirror.settle()
    mirror.committed = mirror.position
    mirror.crash(writes=False)
    mirror.epoch = 7
    mirror.copy([False] * 3)
    mirror.copy([True])
    mirror.settle()
    known = mirror.ledger.reached(None)
    assert known is not None
    assert (known.epochs.between(0, 99), known.mark) == ([(1, 0), (4, 3), (5, 9), (7, 12)], (16, 7))
    assert [known.epoch_before(at) for at in (0, 1, 3, 4, 9, 10, 16, 17)] == [7, 1, 1, 4, 4, 5, 7, -1]
    mirror.epochs.cut(5)
    mirror.recorder.restart(SOURCE, (5,), {})
    mirror.position, mirror.epoch = 5, 8
    mirror.copy([True] * 3)
    mirror.settle()
    known = mirror.ledger.reached(None)
    assert known is not None
    assert (known.epochs.between(0, 99), known.mark) == ([(1, 0), (4, 3), (8, 5)], (8, 8))


def test_where_epochs_begin_is_known_though_pages_of_the_log_that_is_gone_were_not_written_yet() -> None:
    mirror = Mirror()
    for epoch, count in ((1, 10), (2, 10), (3, 10)):
        mirror.epoch = epoch
        mirror.copy([True] * count)
    mirror.epochs.cut(15)
    mirror.recorder.restart(SOURCE, (15,), {})
    mirror.position, mirror.epoch = 15, 5
    mirror.copy([True] * 5)
    mirror.settle()
    known = mirror.ledger.reached(None)
    assert known is not None
    assert (known.epochs.between(0, 99), known.mark) == ([(1, 0), (2, 10), (5, 15)], (20, 5))


def test_which_epoch_began_in_a_page_that_is_gone_is_known_as_long_as_others_tell_of_its_records() -> None:
    mirror = Mirror()
    for epoch, chunks in ((3, RUNS_MAX + 100), (5, RUNS_MAX)):
        mirror.epoch = epoch
        for _ in range(chunks):
            mirror.copy([False, True])
    mirror.settle()
    for key, value in upkeep_records(LANE, mirror.ledger, 2 * RUNS_MAX + 3, mirror.windows):
        assert value is None
        mirror.view.apply(encode_document(key), None)
    known = mirror.ledger.reached(None)
    assert known is not None
    began = 2 * (RUNS_MAX + 100)
    assert [known.epochs.before(at) for at in (2 * RUNS_MAX + 3, began, began + 1)] == [3, 3, 5]
    assert known.epochs.end_of(4) == began


def test_the_epoch_before_where_a_log_parts_is_known_before_anything_more_is_copied() -> None:
    mirror = Mirror()
    for mirror.epoch in (1, 4):
        mirror.copy([True] * 6)
    mirror.settle()
    mirror.epochs.cut(8)
    mirror.recorder.restart(SOURCE, (8,), {})
    mirror.recorder.advance({SOURCE: (8,)})
    mirror.settle()
    assert reached(mirror) == (8, (8, 4))
    mirror.epochs.cut(5)
    mirror.recorder.restart(SOURCE, (5,), {})
    mirror.recorder.advance({SOURCE: (5,)})
    mirror.settle()
    assert reached(mirror) == (5, (5, 1))


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_source_that_loses_more_before_anything_is_copied_again_has_lost_all_of_that(
    is_killed: bool,
) -> None:
    mirror = Mirror()
    mirror.copy([True] * 12)
    mirror.settle()
    for end in (8, 5):
        mirror.recorder.restart(SOURCE, (end,), {LANE: 12})
        mirror.position = end
        mirror.recorder.advance({SOURCE: (end,)})
        mirror.settle()
        assert mirror.ledger.next == end
        if is_killed:
            mirror.committed = end
            mirror.crash(writes=False)
    mirror.copy([True] * 6)
    mirror.settle()
    assert mirror.ledger.next == 11
    assert [mirror.ledger.forward(at).offset for at in (4, 5, 8, 10)] == [4, 12, 15, 17]
    known = [part for each in passes_of(mirror.ledger.pages()) for part in each.copied_parts(Range(0, 99))]
    assert joined(known) == [Range(0, 11)]


def test_that_a_log_is_another_is_owed_until_it_is_written() -> None:
    mirror = Mirror()
    mirror.copy([True] * 10)
    assert mirror.recorder.owing_cuts([SOURCE]) == set()
    mirror.recorder.restart(SOURCE, (6,), {})
    mirror.recorder.advance({SOURCE: (6,)})
    assert mirror.recorder.owing_cuts([SOURCE]) == {SOURCE}
    mirror.settle()
    mirror.position = 6
    mirror.copy([True] * 3)
    assert mirror.recorder.owing_cuts([SOURCE]) == set()
    mirror.recorder.restart(SOURCE, (8,), {})
    mirror.recorder.advance({SOURCE: (8,)})
    assert mirror.recorder.owing_cuts([SOURCE]) == {SOURCE}


def test_pages_that_are_joined_know_the_epochs_of_the_later() -> None:
    pages = [Page(first) for first in (0, 10)]
    for page, mark in zip(pages, (EpochMark(10, 3), None), strict=True):
        page.add_run(page.first, page.first, 10)
        page.epoch = mark
    pages[0].epochs = (EpochStart(3, 0),)
    pages[0].absorb(pages[1])
    assert pages[0].epoch == (10, 3)
    following = Page(20)
    following.add_run(20, 20, 5)
    following.epoch, following.epochs = EpochMark(25, 4), (EpochStart(3, 19), EpochStart(4, 22))
    pages[0].absorb(following)
    assert pages[0].epoch == (25, 4)
    assert pages[0].epochs == ((3, 0), (4, 22))


def test_a_commit_of_very_many_partitions_is_no_work_to_speak_of() -> None:
    """It is made on the event loop that copies: each partition takes microseconds, however many there are."""
    recorder, read = LedgerRecorder("first"), ReadSoFar(ReadEpochs(0, -1), Returned())
    sources = [TopicPartition("flights", number) for number in range(10_000)]
    for source in sources:
        recorder.begin(LANE._replace(partition=source.partition, to_partition=source.partition), 0, read)
    begun = time.process_time()
    recorder.advance(dict.fromkeys(sources, (5,)))
    assert time.process_time() - begun < 1
    assert len(recorder.due(sources).records) == len(sources)


def test_what_a_lane_has_of_before_the_end_of_a_source_is_known_though_another_lane_is_not_as_far() -> None:
    mirror = Mirror()
    behind = LANE._replace(to_partition=4)
    mirror.recorder.begin(behind, 0, ReadSoFar(mirror.epochs, mirror.returned))
    mirror.take(list(range(20)))
    mirror.recorder.advance({SOURCE: (20, 5)})
    mirror.settle()
    mirror.recorder.restart(SOURCE, (10, 5), {})
    mirror.recorder.advance({SOURCE: (10, 5)})
    mirror.settle()
    assert [mirror.ledger.forward(at).offset for at in (4, 5, 9, 10)] == [4, 5, 9, 20]
    assert (mirror.ledger.next, mirror.view.lanes[behind].next) == (10, 5)


def test_no_page_tells_of_what_was_given_up_on_its_way() -> None:
    mirror = Mirror()
    mirror.copy([True] * 4)
    for is_settled in (True, False):
        if is_settled:
            mirror.settle()
        filtered = mirror.position
        mirror.position += 3
        mirror.recorder.lose(SOURCE, DESTINATION, filtered + 1, mirror.position)
        mirror.settle()
        assert mirror.ledger.next == mirror.position, "nothing has arrived behind it"
        mirror.copy([True] * 4)
    mirror.settle()
    (known,) = passes_of(mirror.ledger.pages())
    assert list(known.covered_parts(Range(0, 100))) == [Range(0, 5), Range(7, 12), Range(14, 18)]


def test_runs_of_unknown_place_are_placed_when_what_follows_leaves_one_place_only() -> None:
    mirror = Mirror()
    mirror.copy([True] * 4)
    mirror.copy([True] * 3, is_told=False)
    mirror.settle()
    assert mirror.ledger.forward(5).offset == 4
    assert not mirror.ledger.forward(5).is_exact
    mirror.copy([True] * 2)
    mirror.settle()
    assert [mirror.ledger.forward(at).offset for at in (3, 4, 5, 6, 7)] == [3, 4, 5, 6, 7]


def test_what_lies_on_both_sides_of_a_record_of_another_is_translated_with_care() -> None:
    mirror = Mirror()
    mirror.copy([True] * 4)
    mirror.copy_parted(3)
    mirror.copy([True] * 2)
    mirror.settle()
    forward, back = mirror.ledger.forward, mirror.ledger.back
    assert mirror.destination == [0, 1, 2, 3, 4, None, 5, 6, 7, 8]
    assert [(forward(at).offset, forward(at).is_exact) for at in (4, 5, 6)] == [(4, False)] * 3
    assert [(back(at).offset, back(at).is_exact) for at in (4, 5, 6, 7)] == [(4, False)] * 4
    assert [(forward(at).offset, forward(at).is_exact) for at in (7, 8)] == [(8, True), (9, True)]


@given(st.lists(STEPS, max_size=40))
def test_the_pages_around_an_offset_say_of_it_no_less_than_all_pages(steps: list[tuple[str, object]]) -> None:
    """No less far on: of what is known they leave nothing out that counts."""
    mirror = Mirror(10, span_ms=8)
    perform(mirror, steps)
    ledger, whole = mirror.ledger, LaneMap(mirror.ledger.pages())
    for offset in range(mirror.position + 3):
        assert (ledger.forward(offset).offset or 0) >= (whole.forward(offset).offset or 0)
    for at in range(len(mirror.destination) + 2):
        assert (ledger.back(at).offset or 0) >= (whole.back(at).offset or 0)


def test_records_of_unknown_place_at_the_beginning_of_a_page_are_behind_the_page_before() -> None:
    ledger = LaneLedger()
    for first, to, length in ((0, 0, 1000), (1000, None, 5), (1105, 1200, 10)):
        page = Page(first, by="other" if to is None else None)
        page.add_run(first, to, length)
        if to is None:
            page.add_run(1005, 1010, 100)
        ledger.put(page)
    assert [ledger.forward(at).offset for at in (999, 1000, 1004, 1005)] == [999, 1000, 1000, 1010]


def test_a_translation_is_not_exact_where_records_of_unknown_place_may_lie_before_it() -> None:
    known, unknown = Page(0), Page(10, by="other")
    known.add_run(0, 100, 5)
    known.add_run(7, 105, 3)
    unknown.add_run(10, None, 4)
    ledger = LaneLedger()
    for page in (known, unknown):
        ledger.put(page)
    told = LaneMap(ledger.pages()).forward
    assert [(told(at).offset, told(at).is_exact) for at in (2, 6, 8)] == [(0, False)] * 3
    assert (LaneMap([known]).forward(2).offset, LaneMap([known]).forward(2).is_exact) == (102, True)


@pytest.mark.parametrize("next_offset", [105, 107])
def test_behind_records_of_unknown_place_no_translation_is_exact(next_offset: int) -> None:
    page = Page(0)
    page.add_run(0, 0, 100)
    page.add_run(100, None, 5)
    page.cover(next_offset)
    told = LaneMap([page]).forward
    assert [(told(at).offset, told(at).is_exact) for at in (99, 105, next_offset)] == [
        (99, True),
        (100, False),
        (100, False),
    ]


def test_what_arrived_as_one_with_very_many_runs_takes_several_pages() -> None:
    mirror = Mirror()
    mirror.copy([True, False] * 9000)
    mirror.settle()
    pages = mirror.ledger.pages()
    assert [page.is_part for page in pages] == [True, True, False]
    assert sum(page.count for page in pages) == 9000
    assert [page.crc for page in pages[:2]] == [0, 0]
    assert mirror.ledger.forward(12_345).offset == 6173


@pytest.mark.parametrize("parts", [1, 3_000])
def test_several_records_made_of_one_have_the_place_of_the_first(parts: int) -> None:
    """As functions of a route may make them; `parts`: the pattern so often in one chunk."""
    mirror = Mirror()
    offsets = [at + 4 * part for part in range(parts) for at in (0, 0, 0, 1, 3, 3)]
    mirror.take(offsets)
    mirror.settle()
    count = 4 * parts
    for at, to in ((0, 0), (1, 3), (2, 4), (3, 4), (count - 1, 6 * parts - 2), (count, 6 * parts)):
        told = mirror.ledger.forward(at)
        assert (told.offset, told.is_exact) == (to, True)
    assert mirror.ledger.back(3).offset == 1
    mirror.copy([True] * 2)
    mirror.settle()
    assert [mirror.ledger.forward(count + step).offset for step in range(3)] == [
        6 * parts + step for step in range(3)
    ]
    pages = mirror.ledger.pages()
    assert sum(page.count for page in pages) == 3 * parts + 2
    assert sum(page.more for page in pages) == 3 * parts


def test_whoever_has_read_a_part_of_what_was_made_of_a_record_has_that_record_before_him() -> None:
    mirror = Mirror()
    mirror.take([0, 0, 0, 1, 3, 3])
    mirror.settle()
    here, part, end = (Standing.COPIED, True), (Standing.UNRECORDED, False), (Standing.END, True)

    def back(*places: int) -> list[tuple[int | None, Standing, bool]]:
        told = map(mirror.ledger.back, places)
        return [(each.offset, each.standing, each.is_exact) for each in told]

    assert back(*range(5)) == [(0, *here), (0, *part), (0, *part), (1, *here), (3, *here)]
    assert back(5, 6, 7) == [(3, *part), (4, *end), (4, Standing.BEYOND, False)]
    mirror.marker()
    mirror.copy([True] * 2)
    mirror.settle()
    assert back(5, 6, 7, 8) == [(3, *part), (3, *part), (4, *here), (5, *here)], "6 may be of 3, too"


def test_a_page_of_unknown_place_outlives_the_page_of_whoever_copies_the_same_again() -> None:
    mirror = Mirror()
    mirror.copy([True] * 5)
    mirror.settle()
    mirror.commit()
    mirror.crash(writes=False)
    mirror.copy([False, True, True], is_told=False)
    mirror.crash(writes=True)
    mirror.copy([False])
    mirror.settle()
    mirror.copy([True, True])
    mirror.settle()
    assert mirror.destination == [0, 1, 2, 3, 4, 6, 7, 6, 7]
    told = mirror.ledger.back(6)
    assert told.offset == 6
    assert not told.is_exact, "whoever is there has it already"


def times(mirror: Mirror) -> list[tuple[int, int]]:
    return [(page.first_ms, page.last_ms) for page in mirror.ledger.pages()]


def test_each_window_of_time_has_pages_of_its_own_until_it_is_old() -> None:
    mirror = Mirror(span_ms=10)
    for _ in range(20):
        mirror.copy([True] * 5)
        mirror.settle()
    assert times(mirror) == [(4, 9)] + [(at, at + 5) for at in range(14, 95, 10)]
    assert [mirror.ledger.forward(at).offset for at in (0, 50, 99, 100)] == [0, 50, 99, 100]
    mirror.keep_up()
    assert len(mirror.ledger) == 10, "all are kept apart"
    for _ in range(2 * WINDOWS_KEPT):
        mirror.copy([True] * 5)
    mirror.settle()
    for _ in range(5):
        mirror.keep_up()
    assert times(mirror)[0] == (4, 99)
    assert len(mirror.ledger) == WINDOWS_KEPT + 1
    assert mirror.ledger.pages()[0].count == 100


def test_records_of_the_future_hold_no_window_up_and_those_of_the_past_begin_none() -> None:
    time, now = LaneTime(), [1_000]
    windows = PageWindows(span_ms=10, now_ms=lambda: now[0])
    assert not time.passes(995, windows), "the first is of no other window than the page"
    assert time.advance(995) == 995
    assert time.window_end_ms == 1_000
    assert time.passes(9_999, windows), "it counts as one of now"
    assert (time.advance(9_999), time.window_end_ms) == (1_009, 1_010)
    assert time.advance(3) == 1_009
    assert not time.passes(9_999, windows)
    assert not time.passes(1_010, windows), "it is still now"
    now[0] = 1_012
    assert time.passes(1_010, windows)


def test_a_route_that_catches_up_gets_few_pages_for_the_many_windows_that_it_passes() -> None:
    mirror = Mirror(span_ms=1_000_000)
    mirror.windows.span_ms = 10
    mirror.windows.now_ms = lambda: 1_000
    for _ in range(50):
        mirror.copy([True] * 5)
    mirror.settle()
    assert times(mirror) == [(4, 9), (14, 249)]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 1 << 40), st.none() | st.integers(0, 1 << 40)), min_size=2
    )
)
def test_a_packed_page_is_what_it_was(steps: list[tuple[int, int, int | None]]) -> None:
    page, source, to = Page(7), 7, 100
    for skipped, length, skipped_to in steps:
        source += skipped
        place = None if skipped_to is None else to + skipped_to
        page.add_run(source, place, length)
        source += length
        to = to if place is None else place + length
    before = (list(page.runs()), len(page), page.value(0))
    page.pack()
    assert (list(page.runs()), len(page), page.value(0)) == before
    assert list(Page.of(page.value(0)).runs()) == list(page.runs())


def test_what_transactions_end_takes_few_bytes_each() -> None:
    random, source, to = Random(1), 0, 0
    runs = array("q")
    for _ in range(RUNS_MAX):
        length = random.randint(900, 1100)
        runs.extend((source, to, length))
        source, to = source + length, to + length + 1
    assert PackedRuns(runs).size < 5 * RUNS_MAX
