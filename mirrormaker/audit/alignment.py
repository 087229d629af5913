"""Two runs of records beside each other: which are alike, and where one has what the other lacks. Pure.

Both come piece by piece and are held as long as they do not agree, at most `WINDOW` of each: what is moved
farther than that is seen as lacking at one place and extra at the other, which `settle` brings together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from mirrormaker.audit.findings import Outcome

WINDOW = 4_096


class Item(NamedTuple):
    """A record, as far as it is compared."""

    offset: int
    content: int
    """Hash of all that counts; equal ones are taken for equal records."""
    key: int
    """Hash of the key."""
    timestamp: int
    outcome: Outcome | None = None
    """What it counts as where it has no counterpart; None: as a difference."""
    checksum: int = 0
    """See `window_tally`; 0 where nobody asks for it."""
    may_repeat: bool | None = False
    """It may be a copy that was made again, by the producer of its batch; None: its format names none."""
    is_own: bool = False
    """The producer of its batch has written copies that the ledger knows."""


class Pair(NamedTuple):
    """What stands at one place: of either side there may be nothing."""

    source: Item | None
    destination: Item | None


class Skips(NamedTuple):
    """What records before the first that both have count as, as where a side has lost its beginning: then
    that may be far from where the other begins.
    """

    source: Outcome | None
    destination: Outcome | None


NO_SKIPS = Skips(None, None)


class _Side:
    """Items that wait, and where each content is among them."""

    __slots__ = ("_at", "_is_sparse", "_places", "_since", "ended", "items")

    def __init__(self, *, is_sparse: bool) -> None:
        self._is_sparse = is_sparse
        self.items: deque[Item] = deque()
        self.ended = False
        self._at = 0
        self._places: defaultdict[int, deque[int]] = defaultdict(deque)
        self._since: deque[int] = deque()
        """How many the other side had taken when each came."""

    @property
    def taken(self) -> int:
        """Items that came."""
        return self._at + len(self.items)

    def push(self, item: Item, taken: int) -> None:
        """`taken`: of the other side."""
        self._since.append(taken)
        self._places[item.content].append(self._at + len(self.items))
        self.items.append(item)

    def pop(self) -> Item:
        item = self.items.popleft()
        self._since.popleft()
        places = self._places[item.content]
        places.popleft()
        if not places:
            del self._places[item.content]
        self._at += 1
        return item

    def distance_to(self, content: int) -> int | None:
        """How many items stand before the first with it."""
        places = self._places.get(content)
        return None if places is None else places[0] - self._at

    @property
    def is_full(self) -> bool:
        return self.ended or len(self.items) >= WINDOW

    @property
    def is_over(self) -> bool:
        return self._is_sparse and len(self.items) > WINDOW

    def has_waited_for(self, other: _Side) -> bool:
        """Whether the first was here when the other side had taken `WINDOW` less than now."""
        return other.taken - self._since[0] > WINDOW


class Alignment:
    """See the module."""

    def __init__(
        self, on_equal: Callable[[Item], None], skips: Skips = NO_SKIPS, *, is_sparse: bool = False
    ) -> None:
        """`on_equal`: told of each record that both have. `is_sparse`: what comes is picked out of two runs,
        so that of one side there may never be any: the other parts with what it holds beyond `WINDOW`.
        """
        self._on_equal = on_equal
        self.pairs: list[Pair] = []
        """What stands apart, in its order."""
        self._source = _Side(is_sparse=is_sparse)
        self._destination = _Side(is_sparse=is_sparse)
        self._skips = skips
        self._is_sparse = is_sparse

    @property
    def held(self) -> int:
        """How many records wait, or stand apart."""
        return len(self._source.items) + len(self._destination.items) + len(self.pairs)

    @property
    def is_source_full(self) -> bool:
        """Whether it takes no more of the source without more of the destination."""
        return self._source.is_full

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._source.items and not self._destination.items

    @property
    def wants_destination(self) -> bool:
        """Whether it gets no further without more of the destination."""
        return bool(self._source.items) and not self._destination.is_full

    def begin(self) -> None:
        """Both have agreed once."""
        self._skips = NO_SKIPS

    def take_source(self, items: Iterable[Item]) -> None:
        """More of the source."""
        for item in items:
            self._source.push(item, self._destination.taken)
        self._go_on()

    def take_destination(self, items: Iterable[Item]) -> None:
        """More of the destination."""
        for item in items:
            self._destination.push(item, self._source.taken)
        self._go_on()

    def end_source(self) -> None:
        """The source has nothing more."""
        self._source.ended = True
        self._go_on()

    def end_destination(self) -> None:
        """The destination has nothing more."""
        self._destination.ended = True
        self._go_on()

    def _go_on(self) -> None:
        source, destination = self._source, self._destination
        while source.items and destination.items:
            if source.items[0].content == destination.items[0].content:
                self._on_equal(source.pop())
                destination.pop()
                self._skips = NO_SKIPS
            elif source.is_full and destination.is_full:
                self._part()
            elif source.is_over or destination.is_over:
                self._part_late()
            else:
                return
        while destination.items and not source.items and (source.ended or destination.is_over):
            self._lone_destination()
        while source.items and not destination.items and (destination.ended or source.is_over):
            self._lone_source()

    def _part_late(self) -> None:
        """One side holds too much: let its first go, or both, where the other's has waited as long."""
        source, destination = self._source, self._destination
        over, other = (destination, source) if destination.is_over else (source, destination)
        if other.has_waited_for(over):
            self._part()
        elif over is destination:
            self._lone_destination()
        else:
            self._lone_source()

    def _part(self) -> None:
        """The first two differ: let one go, or both."""
        ahead = self._destination.distance_to(self._source.items[0].content)
        behind = self._source.distance_to(self._destination.items[0].content)
        if ahead is None and behind is None:
            self._part_strangers()
        elif ahead is None or (behind is not None and behind <= ahead):
            self._lone_source()
        else:
            self._lone_destination()

    def _part_strangers(self) -> None:
        """Neither is anywhere on the other side."""
        skips_source, skips_destination = self._skips
        first, other = self._source.items[0], self._destination.items[0]
        if skips_source is not None and (skips_destination is None or first.timestamp <= other.timestamp):
            self._lone_source()
        elif skips_destination is not None or self._may_come(first, other):
            self._lone_destination()
        elif first.outcome is not None:
            self._lone_source()
        elif other.outcome is not None:
            self._lone_destination()
        else:
            self.pairs.append(Pair(self._source.pop(), self._destination.pop()))

    def _may_come(self, first: Item, other: Item) -> bool:
        """Whether the last of the source may wait, as nothing comes behind it and more of the destination
        does, and is not altered into the other.
        """
        is_last = self._source.ended and not self._destination.ended
        return is_last and not self._is_sparse and first.timestamp != other.timestamp

    def _lone_source(self) -> None:
        item = self._source.pop()
        self.pairs.append(Pair(_counted_as(item, self._skips.source), None))

    def _lone_destination(self) -> None:
        item = self._destination.pop()
        self.pairs.append(Pair(None, _counted_as(item, self._skips.destination)))


def _counted_as(item: Item, outcome: Outcome | None) -> Item:
    return item if outcome is None or item.outcome is not None else item._replace(outcome=outcome)
