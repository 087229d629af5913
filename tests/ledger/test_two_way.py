"""Positions where records go both ways between two clusters, now this way and now that."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrormaker.flow.returned import Returned
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.two_way import mirrored_until, read_again, read_again_at_most, translate

MARKER = -1
"""In place of a record."""


@dataclass
class Place:
    """One partition: which records it has, and the ledger of what came there."""

    records: list[int] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    ledger: LaneLedger = field(default_factory=LaneLedger)
    """Of the lane that leads here."""
    read_to: int = 0
    """Position of the route that leads here, at the other place."""


@dataclass
class Pair:
    """Two places, and the number of the next record."""

    places: tuple[Place, Place] = field(default_factory=lambda: (Place(), Place()))
    count: int = 0

    def write(self, place: int, count: int) -> None:
        for _ in range(count):
            self.places[place].records.append(self.count)
            self.places[place].own.add(self.count)
            self.count += 1

    def copy(self, to: int, limit: int, *, is_told: bool = True) -> None:
        """As a route does: what was born here is left out, and dealt with all the same."""
        source, target = self.places[1 - to], self.places[to]
        end = min(len(source.records), target.read_to + limit)
        if end <= target.read_to:
            return
        page, returned = Page(target.read_to), Returned()
        for offset in range(target.read_to, end):
            record = source.records[offset]
            if record in source.own:
                to_offset = len(target.records)
                target.records.append(record)
                page.add_runs([(_run(offset), to_offset)])
            elif record != MARKER:
                returned.read(offset, offset + 1)
        page.cover(end)
        page.returned = returned.within(page.first, end)
        if is_told:
            target.ledger.put(page)
        target.read_to = end

    def copy_and_be_killed(self, to: int, limit: int) -> None:
        """Before a page is written, and so before the position is: whoever goes on copies the same again."""
        target = self.places[to]
        read_to = target.read_to
        self.copy(to, limit, is_told=False)
        target.read_to = read_to

    def mark(self, place: int, count: int) -> None:
        """Markers, which no route copies."""
        for _ in range(count):
            self.places[place].records.append(MARKER)

    def switch(self, to: int) -> None:
        """As failover groups do: all is copied there, and the way back goes on behind what came by the way
        forth; no page tells of that.
        """
        source, target = self.places[1 - to], self.places[to]
        self.copy(to, len(source.records))
        source.read_to = mirrored_until(target.ledger, source.read_to)

    def take(self, what: str, place: int, count: int) -> None:
        if what == "switch":
            self.switch(place)
        elif what == "copy untold":
            self.copy(place, count, is_told=False)
        elif what == "killed":
            self.copy_and_be_killed(place, count)
        elif what == "lose":
            self.places[place].ledger = LaneLedger()
        else:
            {"write": self.write, "mark": self.mark, "copy": self.copy}[what](place, count)


def _without_markers(records: list[int]) -> list[int]:
    return [record for record in records if record != MARKER]


def _run(offset: int):  # type: ignore[no-untyped-def]
    from mirrormaker.flow.chunk import SourceRun

    return SourceRun(offset, 1)


steps = st.lists(
    st.tuples(st.sampled_from(["write", "copy", "mark", "switch"]), st.integers(0, 1), st.integers(1, 5)),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_whoever_changes_sides_finds_what_he_has_not_passed_from_the_first_of_it_on(
    taken: list[tuple[str, int, int]],
) -> None:
    pair = Pair()
    for what, place, count in taken:
        pair.take(what, place, count)
    for to in (0, 1):
        pair.write(1 - to, 1)
        pair.copy(to, len(pair.places[1 - to].records))
    for at in (0, 1):
        here, there = pair.places[at], pair.places[1 - at]
        assert sorted(_without_markers(here.records)) == list(range(pair.count))
        assert sorted(_without_markers(there.records)) == list(range(pair.count))
        for offset in range(len(here.records) + 1):
            passed = {MARKER, *here.records[:offset]}
            wanted = next(
                (place for place, record in enumerate(there.records) if record not in passed),
                len(there.records),
            )
            told = translate(offset, there.ledger, here.ledger)
            assert told.is_exact, (offset, here.records, there.records)
            assert told.offset is not None
            between = sorted((told.offset, wanted))
            assert not _without_markers(there.records[slice(*between)]), (offset, here.records, there.records)
            passed.discard(MARKER)
            for start in (0, wanted, len(there.records)):
                again = sum(record in passed for record in there.records[start:])
                end = len(there.records)
                assert read_again(offset, start, there.ledger, here.ledger, end) == again


def test_what_was_written_to_places_that_are_others_now_is_not_read_again() -> None:
    """The topic there was made anew after a hundred records."""
    pair = Pair()
    pair.write(0, 100)
    pair.copy(1, 100)
    there = pair.places[1]
    there.records.clear()
    for count, end in ((0, 0), (10, 10)):
        pair.write(0, count)
        pair.copy(1, count)
        assert len(there.records) == end
        assert [read_again(at, 0, there.ledger, None, end) for at in (100, 100 + count)] == [0, count]
        assert read_again(105, 3, there.ledger, None, end) == (2 if count else 0)


def test_who_may_have_read_anything_at_a_side_that_is_gone_reads_no_more_again_than_was_there() -> None:
    """Of ten records came five, a marker, what was born at the other side and went back, and what did not."""
    pair = Pair()
    home, standby = pair.places
    pair.write(0, 10)
    pair.copy(1, 5)
    pair.mark(1, 1)
    pair.write(1, 4)
    for went_back_to, again in ((0, 5), (8, 8), (None, 10)):
        told = [read_again_at_most(at, 10, [standby.ledger], went_back_to) for at in (0, 3, 10)]
        assert told == [again, again - 3, 0]
    assert len(home.ledger) == 0


def test_after_a_round_trip_positions_are_told_exactly_in_and_behind_what_came_by_the_way_back() -> None:
    pair = Pair()
    for side in (0, 1, 0, 1, 0):
        pair.switch(side)
        pair.write(side, 10)
    pair.copy(1, 10)
    home, standby = pair.places
    for offset in range(51):
        forth = translate(offset, standby.ledger, home.ledger)
        back = translate(offset, home.ledger, standby.ledger)
        assert [(each.offset, each.is_exact) for each in (forth, back)] == [(offset, True)] * 2


def test_records_that_neither_ledger_tells_of_are_not_passed_over() -> None:
    pair = Pair()
    for side in (0, 1, 0):
        pair.switch(side)
        pair.write(side, 10)
    home, standby = pair.places
    standby.read_to += 3
    pair.copy(1, 10)
    told = [translate(offset, standby.ledger, home.ledger) for offset in (19, 21, 23, 24)]
    places = [(each.offset, each.is_exact) for each in told]
    assert places == [(10, False), (10, False), (20, True), (21, True)]


@settings(deadline=None)
@given(steps)
def test_whoever_changes_sides_while_both_ways_lag_misses_nothing_and_is_told_what_is_exact(
    taken: list[tuple[str, int, int]],
) -> None:
    pair = Pair()
    for what, place, count in taken:
        pair.take(what, place, count)
    for at in (0, 1):
        here, there = pair.places[at], pair.places[1 - at]
        for offset in range(len(here.records) + 1):
            told = translate(offset, there.ledger, here.ledger, here.read_to)
            passed = set(_without_markers(here.records[:offset]))
            if told.offset is None:
                continue
            assert passed.issuperset(_without_markers(there.records[: told.offset]))
            assert told.offset <= len(there.records)
            if told.is_exact and len(there.ledger):
                assert passed.issubset(there.records)
                assert passed.isdisjoint(there.records[told.offset : told.offset + 1])


def test_nobody_misses_copies_there_that_no_ledger_tells_of() -> None:
    """Who copied was killed before it was written down, and another went on."""
    for goes_on in (False, True):
        pair = Pair()
        pair.write(0, 10)
        pair.switch(1)
        pair.write(1, 10)
        pair.copy(0, 5, is_told=False)
        pair.copy(0, 5)
        if goes_on:
            pair.copy(1, 20)
        home, standby = pair.places
        told = [translate(offset, home.ledger, standby.ledger) for offset in (5, 10, 12, 14, 15, 17)]
        places = [(each.offset, each.is_exact) for each in told]
        assert places == [(5, True), *[(10, False)] * 3, (15, True), (17, True)]
        assert read_again(12, 10, home.ledger, standby.ledger, len(home.records)) == 2


def test_where_routes_began_late_groups_that_are_as_far_are_told_exactly() -> None:
    """What both had before neither ledger tells of, and nothing of it has come to the other side."""
    pair = Pair()
    for place in pair.places:
        place.read_to = 5
    for place in (0, 1, 0, 1):
        pair.write(place, 5)
        pair.mark(place, 1)
    for place in (0, 1):
        pair.copy(place, 100)
    for place in (0, 1):
        pair.copy(place, 100)
    for at in (0, 1):
        here, there = pair.places[at], pair.places[1 - at]
        for offset in range(5, len(here.records) + 1):
            assert translate(offset, there.ledger, here.ledger).is_exact, offset


def test_what_the_other_side_has_nothing_of_any_more_is_not_looked_for_there() -> None:
    """Its ledger forgets where that went; the copies stay."""
    pair = Pair()
    pair.write(0, 10)
    pair.copy(1, 5)
    pair.copy(1, 5)
    pair.copy(0, 10)
    home, standby = pair.places
    standby.ledger.remove((0, 0, None))
    told = [translate(2, home.ledger, standby.ledger, start=start) for start in (5, 0)]
    assert [(each.offset, each.is_exact) for each in told] == [(5, True), (0, False)]
    assert read_again(2, 5, home.ledger, standby.ledger, 10) == 0
    assert read_again(2, 0, home.ledger, standby.ledger, 10) == 2


losses = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write", "copy", "mark", "switch"]), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.sampled_from(["copy untold", "lose"]), st.just(1), st.integers(1, 5)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(losses)
def test_nobody_who_goes_back_misses_what_stands_in_copies_that_no_ledger_tells_of(
    taken: list[tuple[str, int, int]],
) -> None:
    """Neither while both ways are at work, nor once all is copied. Where a ledger is lost after a switch, the
    way back has passed over by it what it would have found.
    """
    pair, is_switched = Pair(), False
    for what, place, count in taken:
        is_switched |= what == "switch"
        if what != "lose" or not is_switched:
            pair.take(what, place, count)
    home, standby = pair.places
    for is_at_work in (True, False):
        _assert_nobody_misses_anything(standby, home, is_at_work=is_at_work)
        pair.switch(1)
        pair.copy(0, len(standby.records))


untold_steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "copy", "mark", "switch", "copy untold"]),
        st.integers(0, 1),
        st.integers(1, 5),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(untold_steps, st.integers(0, 1))
def test_nobody_misses_what_stands_in_copies_at_either_side_that_no_ledger_tells_of(
    taken: list[tuple[str, int, int]], forgetful: int
) -> None:
    """Copies that are not told are of one way."""
    pair = Pair()
    for what, place, count in taken:
        pair.take(what, forgetful if what == "copy untold" else place, count)
    for is_at_work in (True, False):
        for here, there in (pair.places, pair.places[::-1]):
            _assert_nobody_misses_anything(here, there, is_at_work=is_at_work)
        pair.switch(1)
        pair.copy(0, len(pair.places[1].records))


kills = st.lists(
    st.tuples(
        st.sampled_from(["write", "mark", "copy", "switch", "killed"]), st.integers(0, 1), st.integers(1, 5)
    ),
    max_size=30,
)


@settings(deadline=None)
@given(kills)
def test_nobody_misses_anything_where_both_ways_were_killed_while_they_copied(
    taken: list[tuple[str, int, int]],
) -> None:
    """What the route had not written down when it was killed it copies again."""
    pair = Pair()
    for what, place, count in taken:
        pair.take(what, place, count)
    for is_at_work in (True, False):
        for here, there in (pair.places, pair.places[::-1]):
            pending = here.ledger.next or 0 if is_at_work else None
            for offset in range(len(here.records) + 1):
                told = translate(offset, there.ledger, here.ledger, pending)
                if told.offset is None:
                    continue
                found = {*there.records[told.offset :], *here.records[there.read_to :]}
                skipped = set(_without_markers(there.records[: told.offset]))
                assert found.issuperset(skipped - set(here.records[:offset])), offset
        pair.switch(1)
        pair.copy(0, len(pair.places[1].records))


def _assert_nobody_misses_anything(here: Place, there: Place, *, is_at_work: bool) -> None:
    """That the first copies of all are told by no ledger is found only by who reads them."""
    if is_at_work and here.ledger.to_first is None and there.read_to < len(here.records):
        return
    pending = here.ledger.next or 0 if is_at_work else None
    for offset in range(len(here.records) + 1):
        told = translate(offset, there.ledger, here.ledger, pending)
        passed = set(_without_markers(here.records[:offset]))
        if told.offset is not None:
            assert passed.issuperset(_without_markers(there.records[: told.offset])), offset
            again, end = sum(each in passed for each in there.records[told.offset :]), len(there.records)
            bound = read_again(offset, told.offset, there.ledger, here.ledger, end)
            assert is_at_work or bound >= again


def test_nobody_passes_the_last_copies_there_while_the_ledger_does_not_tell_of_them_yet() -> None:
    """The way back has read them sooner than they were written down."""
    for count in (0, 3):
        pair = Pair()
        pair.write(1, count)
        pair.copy(0, count)
        pair.write(1, 2)
        pair.copy(0, 2, is_told=False)
        pair.copy(1, 10)
        home, standby = pair.places
        for pending in (standby.ledger.next, None):
            told = translate(count, home.ledger, standby.ledger, pending)
            assert (told.offset, told.is_exact) == (count, False)


@settings(deadline=None)
@given(steps)
def test_the_way_back_begins_at_the_first_record_that_did_not_come_by_the_way_forth(
    taken: list[tuple[str, int, int]],
) -> None:
    pair = Pair()
    for what, place, count in taken:
        if what in ("write", "copy"):
            pair.take(what, place if what == "write" else 1, count)
    standby = pair.places[1]
    own = [offset for offset, record in enumerate(standby.records) if record in standby.own]
    for start in range(len(standby.records) + 1):
        left = [offset for offset in own if offset >= start]
        assert mirrored_until(standby.ledger, start) == (left[0] if left else len(standby.records))
