"""What a destination that lost its end, or was made anew, has no more of what was written to it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.audit.lost_places import lost_places, uncertain_offsets
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import PageRun


@pytest.mark.parametrize(
    ("runs", "end", "lost"),
    [
        ([], 0, []),
        ([(0, 0, 10), (12, 10, 5)], 15, []),
        ([(0, 0, 10), (5, 10, 10)], 20, []),  # copied again, as after a crash
        ([(0, 0, 10)], 6, [((6, 10), 6)]),
        ([(0, 0, 10), (10, 0, 6)], 6, [((0, 6), 0), ((6, 10), 6)]),  # made anew, and on its way
        ([(0, 0, 10), (10, 0, 10)], 10, [((0, 10), 0)]),  # grown over
        ([(0, 0, 10), (10, 4, 9)], 13, [((4, 10), 4)]),  # it had lost its end
        ([(0, 0, 10), (5, 0, 5)], 5, [((0, 5), 0)]),  # what came behind has been copied again
        ([(0, 0, 10), (5, 5, 10)], 15, []),  # told twice
        ([(0, 0, 5), (5, 0, 5), (10, 0, 5)], 5, [((0, 5), 0), ((5, 10), 0)]),
        ([(0, 0, 10), (10, 0, 4), (14, 5, 5)], 11, [((0, 4), 0), ((4, 5), 4), ((5, 10), 5)]),  # a marker at 4
        ([(0, 0, 10), (10, 0, 9)], 10, [((0, 9), 0), ((9, 10), 9)]),  # a marker at its end
        ([(0, 0, 10), (10, 0, 4), (14, 6, 5)], 11, [((0, 4), 0), ((6, 10), 6)]),  # more than a marker there
        ([(8, 0, 1), (10, 1, 1), (8, 2, 1), (10, 3, 1)], 4, []),  # copied again, with a hole
        ([(10, 0, 10), (5, 10, 1)], 11, []),  # one of those before the start, on its way
    ],
)
def test_what_is_at_no_place_any_more_is_lost(
    runs: list[tuple[int, int, int]], end: int, lost: list[tuple[tuple[int, int], int]]
) -> None:
    assert [
        (tuple(each.source), each.to) for each in lost_places([PageRun(*run) for run in runs], end)
    ] == lost


@pytest.mark.timeout(60)
def test_very_many_transactions_are_lost_in_a_moment() -> None:
    """Each is a run, as a marker follows it on both sides."""
    count, length = 30_000, 11
    runs = [PageRun(each * length, each * length, length - 1) for each in range(count)]
    assert [each.source.first for each in lost_places(runs, 0)] == [each.source for each in runs]
    assert len(lost_places(runs, count * length // 2)) == count // 2


@pytest.mark.parametrize(
    ("runs", "others", "uncertain"),
    [
        ([(0, 0, 10)], [], []),
        ([(0, 0, 10)], [(10, 20)], []),
        ([(0, 0, 10), (10, 20, 10)], [(4, 8), (29, 35)], [(4, 8), (19, 20)]),
        ([(0, 0, 10), (0, 20, 6)], [(0, 10)], [(6, 10)]),  # the first have been copied again
        ([(0, 0, 10), (10, 0, 10)], [(2, 3), (5, 6)], [(2, 3), (5, 6), (12, 13), (15, 16)]),
    ],
)
def test_what_stands_only_where_others_were_written_too_is_uncertain(
    runs: list[tuple[int, int, int]], others: list[tuple[int, int]], uncertain: list[tuple[int, int]]
) -> None:
    ranges = [Range(*each) for each in others]
    assert uncertain_offsets([PageRun(*run) for run in runs], ranges) == uncertain


@given(seed=st.integers(0, 1 << 32))
def test_nothing_is_lost_that_is_there_among_markers_of_transactions(seed: int) -> None:
    random = Random(seed)
    log: list[int | None] = []
    runs: list[PageRun] = []
    at, is_cut = 0, bool(random.randrange(2))
    for _ in range(random.randrange(1, 12)):
        if not random.randrange(4):
            if is_cut:
                del log[random.randrange(len(log) + 1) :]
            else:
                at = random.randrange(at + 1)  # somebody has it copy that again
        length = random.randrange(1, 6)
        runs.append(PageRun(at, len(log), length))
        log += [*range(at, at + length), *[None] * random.randrange(3)]
        at += length + random.randrange(3)
    written = {offset for run in runs for offset in range(run.source, run.source + run.length)}
    lost = {offset for each in lost_places(runs, len(log)) for offset in range(*each.source)}
    assert lost <= written - set(log)


@given(seed=st.integers(0, 1 << 32))
def test_it_is_what_a_log_says_that_is_cut_and_written_on(seed: int) -> None:
    random = Random(seed)
    log: list[int] = []
    runs: list[PageRun] = []
    at = 0
    for _ in range(random.randrange(1, 12)):
        match random.randrange(4):
            case 0:
                del log[random.randrange(len(log) + 1) :]
            case 1:
                at = max(at - random.randrange(4), max(log, default=0))
        at += random.randrange(3)
        length = random.randrange(1, 6)
        runs.append(PageRun(at, len(log), length))
        log += range(at, at + length)
        at += length
    written = {offset for run in runs for offset in range(run.source, run.source + run.length)}
    lost = [offset for each in lost_places(runs, len(log)) for offset in range(*each.source)]
    assert lost == sorted(written - set(log))
