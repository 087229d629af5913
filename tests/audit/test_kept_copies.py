"""What a source lost after it was copied, out of the pages of the ledger and the notes at the destination."""

from __future__ import annotations

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.kept_copies import KeptCopies, kept_copies
from mirrormaker.audit.lane_runs import passes_of, severed_passes_of
from mirrormaker.audit.notes import truncations
from mirrormaker.audit.ranges import Range
from mirrormaker.flow.skips import describe_skip
from mirrormaker.flow.trouble import went_back
from mirrormaker.ledger.page import Page
from mirrormaker.topology.model import RouteName

SOURCE, TO = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
ROUTE = RouteName("a")


def page(first: int, *runs: tuple[int, int | None, int], anew: bool = False, more: int = 0) -> Page:
    """`runs`: source offset, place, records."""
    made = Page(first, is_anew=anew)
    for source, to, length in runs:
        made.add_run(source, to, length)
    if more and made.to_next is not None:
        made.more, made.to_next = more, made.to_next + more
    return made


CUT_TWICE = [
    page(0, (0, 0, 80)),
    page(50, (50, 81, 15), anew=True),
    page(60, (60, 97, 40), anew=True),
]
"""The source lost 50 to 79, got 15 others, and lost 5 of these."""
NOTES = [
    describe_skip(ROUTE, went_back(SOURCE, at, lost), at_ms)
    for at, lost, at_ms in ((50, (50, 80), 1_000), (60, (60, 65), 2_000))
]


def kept(pages: list[Page], there: Range) -> list[KeptCopies]:
    notes = truncations(NOTES, ROUTE).get(SOURCE, ())
    return kept_copies(SOURCE, TO, severed_passes_of(pages), passes_of(pages), there, notes)


def test_each_loss_is_told_with_its_note_and_what_stands_around_it_is_known_as_before() -> None:
    told = [
        (each.offsets, each.places, each.count, None if each.note is None else each.note.at_ms)
        for each in kept(CUT_TWICE, Range(0, 137))
    ]
    assert told == [(Range(50, 80), Range(50, 80), 30, 1_000), (Range(60, 65), Range(91, 96), 5, 2_000)]
    (known,) = passes_of(CUT_TWICE)
    assert [tuple(run) for run in known.known_runs] == [(0, 0, 50), (50, 81, 10), (60, 97, 40)]


def test_what_the_destination_has_no_more_is_not_kept() -> None:
    assert [each.offsets for each in kept(CUT_TWICE, Range(70, 137))] == [Range(70, 80), Range(60, 65)]
    assert [each.offsets for each in kept(CUT_TWICE, Range(0, 60))] == [Range(50, 60)]
    others = passes_of([page(100, (100, 20, 50))])
    copies = kept_copies(SOURCE, TO, severed_passes_of(CUT_TWICE), others, Range(0, 137), ())
    assert [each.offsets for each in copies] == [Range(70, 80), Range(60, 65)], "others stand there since"


def test_a_loss_is_told_for_people() -> None:
    line = kept(CUT_TWICE, Range(0, 137))[0].line()
    assert line == (
        "flights-0 offsets 50 to 79: the source lost them after they were copied (source_truncated, noted at "
        "1970-01-01T00:00:01Z); jfk.flights-0 keeps 30 records of them at offsets 50 to 79"
    )


def test_a_loss_without_a_note_is_told_too() -> None:
    pages = [page(0, (0, 0, 8)), page(5, (5, 8, 2), anew=True)]
    (copies,) = kept_copies(SOURCE, TO, severed_passes_of(pages), passes_of(pages), Range(0, 10), ())
    assert (copies.offsets, copies.note, copies.document()["reason"]) == (Range(5, 8), None, None)


@pytest.mark.parametrize(
    ("whole", "before", "behind"),
    [
        (page(0, (0, 10, 10)), [(0, 10, 4)], [(4, 14, 6)]),
        (page(0, (1, 10, 2), (6, 15, 2)), [(1, 10, 2)], [(6, 15, 2)]),
        (page(0, (0, 10, 2), (2, None, 6), (8, 20, 1)), [(0, 10, 2), (2, -1, 2)], [(4, -1, 4), (8, 20, 1)]),
    ],
    ids=["within a run", "between runs", "where places are not known"],
)
def test_a_page_is_parted(
    whole: Page, before: list[tuple[int, int, int]], behind: list[tuple[int, int, int]]
) -> None:
    first, second = whole.part(0, 4), whole.part(4, 99)
    assert [tuple(run) for run in first.runs()] == before
    assert [tuple(run) for run in second.runs()] == behind
    assert (first.first, first.next, second.first, second.next) == (0, 4, 4, whole.next)
    assert first.count + second.count == whole.count
    assert (first.crc, second.source_crc) == (None, None)
    assert whole.part(0, whole.next) is whole


def test_what_a_function_made_more_of_stays_with_the_part_that_it_was_made_of() -> None:
    whole = page(0, (0, 10, 2), (2, 20, 2), more=3)
    first, second = whole.part(0, 2), whole.part(2, 99)
    assert (first.to_first, first.to_next, second.to_first, second.to_next) == (10, 20, 20, 25)
