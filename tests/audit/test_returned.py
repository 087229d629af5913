"""Stretches of a source that came from the destination, with the markers between them."""

from __future__ import annotations

import pytest

from mirrormaker.audit.ranges import Range
from mirrormaker.audit.returned import over_markers


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ([], []),
        ([(0, 5)], [(0, 5)]),
        ([(0, 5), (6, 9), (10, 12)], [(0, 12)]),
        ([(0, 5), (7, 9)], [(0, 5), (7, 9)]),
        ([(3, 5), (6, 9), (11, 12), (13, 20)], [(3, 9), (11, 20)]),
    ],
)
def test_a_single_offset_between_them_is_a_marker_and_more_is_somebody_elses(
    ranges: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    assert list(over_markers([Range(*each) for each in ranges])) == [Range(*each) for each in wanted]
