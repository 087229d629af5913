"""Where a route stands in a lane by what is written of it, where the positions of its group tell less. Pure.

A source forgets the positions of groups that rest for long, and takes none while a right is missing. What is
written reaches farther then, but tells of no seek: pages stay of what was copied before one. So what was
written last counts, in the order of the destination; where that does not show what came last, nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.ledger.page import Page


class Reach(NamedTuple):
    """Up to where a lane was copied."""

    next: int
    """The source offset after that."""
    to_next: int
    """The destination offset after the last copy; 0 where no place of one is known."""


def last_reach(pages: Sequence[Page]) -> Reach | None:
    """What was written last, of these pages of a lane, led to; None: there are none."""
    if not pages:
        return None
    ordered = sorted(pages, key=attrgetter("order"))
    reach = _reach_of(ordered[-1])
    for page in sorted(pages, key=attrgetter("first")):
        if page.to_first is None and page.first == reach.next:
            reach = reach._replace(next=page.next)
    return reach


def reach_from(pages: Sequence[Page], position: int) -> Reach:
    """How far whoever stored `position` had come since; that itself where it is not certain."""
    here = Reach(position, 0)
    around = [page for page in pages if page.first <= position <= page.next]
    if len(around) > 1 and any(page.to_first is None and page.first < position for page in around):
        return here
    reach = here
    for page in sorted(pages, key=attrgetter("order")):
        if page.is_anew:
            reach = here
        if page in around or (page.first == reach.next and page.to_first is not None):
            reach = _reach_of(page)
    return reach


def lanes_at(lanes: Mapping[TopicPartition, int | None]) -> LanePositions:
    """Where lanes go on, by their destinations, some of which nothing is written of: then all to the same
    topic go on where the least of all is, as records may take other ways than before.
    """
    known = [at for at in lanes.values() if at is not None]
    unknown = {to.topic for to, at in lanes.items() if at is None}
    return tuple(min(known) if to.topic in unknown or at is None else at for to, at in lanes.items())


def _reach_of(page: Page) -> Reach:
    return Reach(page.next, page.to_next or 0)
