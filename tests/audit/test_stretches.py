"""Which parts of both sides are compared with each other, whatever lies between whatever."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as some

from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.lane_runs import Pass, passes_of
from mirrormaker.audit.ranges import Range, joined
from mirrormaker.audit.stretches import Stretch, stretches_of
from mirrormaker.ledger.page import Page


def page(*runs: tuple[int, int, int]) -> Page:
    """With these: source, destination, length."""
    made = Page(runs[0][0])
    for run in runs:
        made.add_run(*run)
    source, _, length = runs[-1]
    made.cover(source + length)
    return made


def stretches(
    passes: Sequence[Pass], end: int, to_end: int, *, first: int = 0
) -> list[tuple[Range, Range, int]]:
    return [
        (each.source, each.to, each.repeated_to)
        for each in stretches_of(passes, 0, Range(first, end), Range(0, to_end))
    ]


def judged(pages: Sequence[Page], end: int, to_end: int) -> list[tuple[Range, Range, int]]:
    """From the first offset on that the pages tell of."""
    passes = passes_of(pages)
    begun = min(each.source.first for each in passes)
    found = stretches_of(passes, begun, Range(0, end), Range(0, to_end))
    return [(each.source, each.to, each.repeated_to) for each in found]


def test_a_pass_reaches_up_to_the_next_and_the_last_to_the_end() -> None:
    passes = passes_of([page((0, 2, 10)), page((5, 14, 10))])
    assert stretches(passes, 20, 30) == [
        (Range(0, 10), Range(2, 14), 0),
        (Range(5, 20), Range(14, 30), 10),
    ]
    assert stretches(passes, 8, 30, first=6) == [
        (Range(6, 8), Range(8, 10), 0),
        (Range(6, 8), Range(15, 17), 8),
    ]


def test_no_pass_reaches_farther_than_what_is_read() -> None:
    passes = passes_of([page((0, 2, 10)), page((5, 14, 10))])
    assert [(each[0], each[1].next) for each in stretches(passes, 20, 13)] == [
        (Range(0, 10), 13),
        (Range(5, 20), 13),
    ]
    assert stretches(passes, 20, 8)[0] == (Range(0, 10), Range(2, 8), 0)


def test_a_window_that_begins_before_the_first_record_with_a_copy_has_that() -> None:
    """As filters, aborted transactions and compaction leave no copies of what comes first."""
    late = Page(0)
    late.add_run(50, 0, 10)
    (known,) = passes_of([late])
    assert stretches([known], 60, 10, first=20) == [(Range(20, 60), Range(0, 10), 0)]
    assert stretches([known], 40, 10, first=20) == [(Range(20, 40), Range(0, 0), 0)]
    assert stretches([known], 55, 10, first=20) == [(Range(20, 55), Range(0, 5), 0)]


def test_pages_of_which_nothing_was_copied_hide_nothing_of_those_before_them() -> None:
    """As of a process that began behind 10 and whose records all went elsewhere, or were left out."""
    empty = Page(10)
    empty.cover(20)
    copied, later = page((0, 0, 10)), page((20, 10, 5))
    assert judged([copied, empty], 20, 10) == [(Range(0, 20), Range(0, 10), 0)]
    assert judged([copied, empty, later], 25, 15) == [(Range(0, 25), Range(0, 15), 0)]


def test_what_a_process_writes_that_stood_still_meanwhile_is_read_with_its_own() -> None:
    """It had copied up to 10; another went on from 8, and then it wrote 10 and 11 once more."""
    passes = passes_of([page((0, 0, 10), (10, 22, 2)), page((8, 10, 12)), page((20, 24, 5))])
    assert stretches(passes, 25, 30) == [
        (Range(0, 12), Range(0, 24), 0),
        (Range(8, 25), Range(10, 30), 12),
    ]


def test_what_is_written_once_more_at_the_end_does_not_stand_for_what_is_still_to_come() -> None:
    passes = passes_of([page((0, 0, 20)), page((5, 20, 3))])
    assert stretches(passes, 25, 23) == [
        (Range(0, 25), Range(0, 20), 0),
        (Range(5, 8), Range(20, 23), 25),
    ]


def test_what_a_process_writes_behind_one_that_went_on_farther_is_of_another_pass() -> None:
    """At most once: the first had stored that it took 1 and 2, and wrote them when another was at 5."""
    passes = passes_of([page((0, 0, 1), (1, 3, 2)), page((4, 1, 2))])
    assert stretches(passes, 8, 9) == [
        (Range(0, 3), Range(0, 9), 0),
        (Range(3, 8), Range(1, 3), 3),
    ]


def test_what_was_copied_first_after_a_seek_to_before_the_start_repeats_nothing() -> None:
    """The route began at 20, and was taken back to 14, and once more to 5, up to 9 alone, and then to 34."""
    pages = [page((20, 0, 10)), page((14, 10, 20)), page((5, 30, 4)), page((34, 34, 6))]
    assert judged(pages, 40, 50) == [
        (Range(20, 30), Range(0, 10), 0),
        (Range(14, 20), Range(10, 16), 0),
        (Range(20, 34), Range(16, 30), 30),
        (Range(5, 14), Range(30, 34), 0),
        (Range(14, 40), Range(34, 50), 34),
    ]


def test_a_window_that_ends_before_the_first_pass_has_what_a_later_one_has_of_it() -> None:
    passes = passes_of([page((20, 0, 10)), page((5, 10, 25))])
    found = stretches_of(passes, 5, Range(8, 15), Range(0, 35))
    assert [(each.source, each.to, each.repeated_to) for each in found] == [(Range(8, 15), Range(13, 20), 0)]


@given(
    writes=some.lists(
        some.tuples(some.integers(0, 2), some.integers(0, 3), some.integers(1, 4), some.integers(0, 2)),
        min_size=1,
        max_size=20,
    )
)
def test_every_place_is_read_by_whoever_judges_it(writes: list[tuple[int, int, int, int]]) -> None:
    """Processes write by turns, each in the order of the source, and others between them."""
    at, to = [0, 0, 0], 0
    runs: list[list[tuple[int, int, int]]] = [[], [], []]
    for writer, left_out, length, others in writes:
        at[writer] += left_out
        to += others
        runs[writer].append((at[writer], to, length))
        at[writer], to = at[writer] + length, to + length
    passes = passes_of(page(*each) for each in runs if each)
    index, end = DestinationIndex(passes), Range(0, to + 3)
    found = list(stretches_of(passes, 0, Range(0, max(at) + 2), end))
    assert joined(each.source for each in found) == [Range(0, max(at) + 2)]
    assert all(_cover(found, each, place) for each in passes for place in each.places())
    for gap in index.gaps(Range(index.first or 0, end.next)):
        assert any(index.is_neighbour(each, gap.first) and _cover(found, each, gap) for each in passes)


def _cover(stretches: Sequence[Stretch], known: Pass, place: Range) -> bool:
    read = joined(each.to for each in stretches if each.known is known)
    return any(each.first <= place.first and place.next <= each.next for each in read)
