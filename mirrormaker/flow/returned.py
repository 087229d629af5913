"""Where in what was read of a partition lies what came straight from the destination. Pure.

A route leaves such batches out. Whoever finds more of them than the destination's own ledger tells of knows
that there are copies of which nothing is written down.
"""

from __future__ import annotations

from typing import NamedTuple

SPANS_MAX = 64
"""What is known apart: the newest. All that lies before is one span."""


class Span(NamedTuple):
    """Offsets from the first that came back to the last: what lies between them need not have."""

    first: int
    next: int

    def within(self, first: int, end: int) -> Span | None:
        """What of it lies there."""
        span = Span(max(self.first, first), min(self.next, end))
        return span if span.first < span.next else None


def around(*spans: Span) -> Span:
    """All of them in one."""
    return Span(min(span.first for span in spans), max(span.next for span in spans))


class Returned:
    """Of one partition; it only grows, but for what the log has lost."""

    __slots__ = ("_spans",)

    def __init__(self) -> None:
        self._spans: list[Span] = []
        """In their order, apart from each other."""

    def read(self, first: int, end: int) -> None:
        """These offsets came back; they may have been read before."""
        before = [span for span in self._spans if span.next < first]
        behind = [span for span in self._spans if span.first > end]
        touched = self._spans[len(before) : len(self._spans) - len(behind)]
        self._spans = [*before, around(Span(first, end), *touched), *behind]
        if len(self._spans) > SPANS_MAX:
            self._spans[:2] = [around(*self._spans[:2])]

    def within(self, first: int, end: int) -> Span | None:
        """What is known to have come back between these offsets."""
        found = [part for span in self._spans if (part := span.within(first, end)) is not None]
        return around(*found) if found else None

    def cut(self, offset: int) -> None:
        """What was read from `offset` on is not there any more; what lies before that is."""
        self._spans = [part for span in self._spans if (part := span.within(0, offset)) is not None]
