"""Who may have written a batch of a destination."""

from __future__ import annotations

import pytest

from broker.records.batch import read_header
from mirrormaker.audit.entries import Entry, Repeaters
from tests.records.samples import PLAIN_SAMPLES, build


def entry_of(producer_id: int) -> Entry:
    batch = memoryview(build(PLAIN_SAMPLES, producer_id=producer_id, producer_epoch=0, base_sequence=0))
    header = read_header(batch)
    return Entry(batch, header, header.next_offset)


@pytest.mark.parametrize(
    ("known", "is_route_one", "by_7", "by_8", "by_none", "by_old"),
    [
        ({7}, True, True, False, False, None),
        ({7}, False, True, False, False, False),
        (set[int](), True, True, True, False, None),
        (set[int](), False, False, False, False, False),
    ],
)
def test_what_was_copied_again_is_by_a_producer_that_was_noted_whatever_the_route_is_now(
    known: set[int],
    is_route_one: bool,
    by_7: bool,
    by_8: bool,
    by_none: bool,
    by_old: bool | None,
) -> None:
    repeaters = Repeaters(known, is_route_one)
    told = [repeaters.may_have_written(entry_of(each)) for each in (7, 8, -1)]
    assert told == [by_7, by_8, by_none]
    assert repeaters.may_have_written(Entry(memoryview(b""), None, 1)) is by_old
    assert repeaters.are_any == (bool(known) or is_route_one)
