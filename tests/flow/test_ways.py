"""To which partition a record goes that has no key, or whose route spreads all in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from mirrormaker.flow.ways import in_turn


@pytest.mark.parametrize("count", [2, 3, 4, 12])
def test_each_lane_is_taken_once_in_every_round(count: int) -> None:
    for first in range(0, 100 * count, count):
        assert sorted(in_turn(offset, count) for offset in range(first, first + count)) == list(range(count))


@pytest.mark.parametrize("count", [2, 3, 4, 12])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_no_lane_is_left_out_where_a_marker_or_a_filter_takes_the_offsets_between(
    count: int, stride: int
) -> None:
    taken = Counter(in_turn(offset, count) for offset in range(0, stride * count**3, stride))
    assert taken == dict.fromkeys(range(count), count**2)
