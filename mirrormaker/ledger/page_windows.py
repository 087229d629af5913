"""Windows of time that pages of the ledger keep to, so that counts and checksums are known of each. Pure.

The time of a page is that of the youngest record so far, when it begins and when it ends: a late record does
not take it back. A record from the future counts as one of now, so that it does not hold up all windows after
it. A route that catches up passes many windows at once: it gets no more than two pages for each window that
goes by meanwhile, and such a page tells of several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NO_TIME = -1
"""Of records without one, and of pages without records."""
WINDOWS_KEPT = 24
"""Windows before the youngest whose pages are kept apart; of older ones they are joined."""


@dataclass(slots=True, kw_only=True)
class PageWindows:
    """Of one route."""

    span_ms: int
    now_ms: Callable[[], int]
    """Since the epoch."""

    def end_of(self, at_ms: int) -> int:
        """When the window of a record with this time ends."""
        at_ms = min(at_ms, self.now_ms())
        return at_ms - at_ms % self.span_ms + self.span_ms

    def are_apart(self, first_ms: int, last_ms: int, newest_ms: int) -> bool:
        """Whether pages from `first_ms` to `last_ms` are not joined, as these are of different windows, and
        not old beside the newest.
        """
        if NO_TIME in (first_ms, last_ms) or first_ms // self.span_ms == last_ms // self.span_ms:
            return False
        return last_ms > newest_ms - WINDOWS_KEPT * self.span_ms


@dataclass(slots=True)
class LaneTime:
    """How far records of one lane have come in time."""

    youngest_ms: int = NO_TIME
    window_end_ms: int = 0
    """Of the window of the youngest."""
    _again_ms: int = 0
    """No page ends for its window before this time."""

    def passes(self, at_ms: int, windows: PageWindows) -> bool:
        """Take in a record that is not older than `window_end_ms`: whether the page at hand ends here."""
        end_ms = windows.end_of(at_ms)
        if end_ms <= self.window_end_ms:
            return False  # of the future
        is_first, self.window_end_ms = self.youngest_ms == NO_TIME, end_ms
        now_ms = windows.now_ms()
        if is_first or now_ms < self._again_ms:
            return False
        self._again_ms = now_ms + windows.span_ms // 2
        return True

    def advance(self, at_ms: int) -> int:
        """Take in a record; the time that the page which it goes into has then."""
        self.youngest_ms = max(self.youngest_ms, min(at_ms, self.window_end_ms - 1))
        return self.youngest_ms
