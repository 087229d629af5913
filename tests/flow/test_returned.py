"""Where what came back lies in what was read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.flow.returned import SPANS_MAX, Returned, Span


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 9)), min_size=1, max_size=20), st.integers(0, 100)
)
def test_it_is_told_from_the_first_that_came_back_to_the_last(read: list[tuple[int, int]], cut: int) -> None:
    """Also of what was read again."""
    returned, offsets = Returned(), set[int]()
    for first, count in read:
        returned.read(first, first + count)
        offsets |= set(range(first, first + count))
    for first, end in ((0, 100), (cut, 100), (0, cut), (cut, cut + 5)):
        within = sorted(offset for offset in offsets if first <= offset < end)
        assert returned.within(first, end) == (Span(within[0], within[-1] + 1) if within else None)
    returned.cut(cut)
    left = sorted(offset for offset in offsets if offset < cut)
    assert returned.within(0, 100) == (Span(left[0], left[-1] + 1) if left else None)


def test_only_the_newest_are_known_apart() -> None:
    returned = Returned()
    for number in range(SPANS_MAX + 5):
        returned.read(10 * number, 10 * number + 3)
    assert returned.within(4, 9) == Span(4, 9), "between old ones"
    assert returned.within(104, 109) is None
    assert returned.within(0, 10_000) == Span(0, 10 * (SPANS_MAX + 4) + 3)
