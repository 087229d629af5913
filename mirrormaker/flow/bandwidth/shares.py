"""Fair shares of what is scarce, over a tree: start-time fair queueing at every node (Goyal, Vin and Cheng,
1996).

Those that wait at a node get turns in the ratio of their weights, by bytes; one that has nothing waiting
leaves its part to the others and saves up nothing. Among any two that wait throughout, what they got, divided
by weight, differs by no more than one piece of each. A node may have a limit of its own: while that is spent,
its siblings go on. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from mirrormaker.flow.bandwidth.bucket import Bucket

VOID_ENTRIES_MAX = 16
"""In the line of a node, beside as many as there are children that wait."""


class Share:
    """A node of the tree; a leaf has one piece waiting at a time."""

    __slots__ = (
        "_count",
        "_entry",
        "_finish",
        "_is_waiting",
        "_line",
        "_parent",
        "_start",
        "_turn",
        "_virtual",
        "bucket",
        "weight",
    )

    def __init__(
        self, parent: Share | None = None, *, weight: float = 1.0, bucket: Bucket | None = None
    ) -> None:
        self.weight = weight
        self.bucket = bucket
        """Its own limit, beside those of the nodes above."""
        self._parent = parent
        self._start = self._finish = 0.0
        """Tags of the piece at hand, or of the last, in bytes by weight on the parent's clock."""
        self._virtual = 0.0
        """The clock of its children: the start tag of the piece that was served last."""
        self._line: list[tuple[float, int, Share]] = []
        """Waiting children by start tag; entries whose number is not the child's are void. They go when they
        come first, which they do not behind one that a limit holds, or when there are many.
        """
        self._entry = 0
        self._turn = 0
        self._count = 0
        """Children that wait."""
        self._is_waiting = False

    @property
    def is_waiting(self) -> bool:
        """Whether a piece of it, or below it, waits."""
        return self._is_waiting or self._count > 0

    @property
    def is_forgettable(self) -> bool:
        """Whether a new node in its place would be treated the same."""
        return not self.is_waiting and (self._parent is None or self._finish <= self._parent._virtual)

    def start_behind(self, size: float) -> float:
        """The start tag of what would wait here behind so many bytes: the least is served first."""
        assert self._parent is not None
        start = self._start if self._is_waiting else max(self._parent._virtual, self._finish)
        return start + size / self.weight

    def wait(self) -> None:
        """A piece of this leaf is ready to be served."""
        node = self
        while (parent := node._parent) is not None and not node._is_waiting:
            node._start = max(parent._virtual, node._finish)
            parent._push(node)
            node = parent

    def leave(self) -> None:
        """The piece of this leaf waits no more."""
        node = self
        while (parent := node._parent) is not None and node._is_waiting and not node._count:
            node._is_waiting = False
            parent._count -= 1
            node = parent

    def next_leaf(self, now_ms: int) -> Share | None:
        """The leaf below whose turn it is; None: nothing waits, or limits forbid it now."""
        if self.bucket is not None and not self.bucket.is_open(now_ms):
            return None
        if not self._count:
            return self if self._is_waiting else None
        for child in self._in_turn():
            leaf = child.next_leaf(now_ms)
            if leaf is not None:
                return leaf
        return None

    def serve(self, size: float, now_ms: int) -> None:
        """The piece of this leaf, of `size` bytes, passes."""
        node = self
        while True:
            if node.bucket is not None:
                node.bucket.spend(size, now_ms)
            parent = node._parent
            if parent is None:
                return
            node._finish = node._start + size / node.weight
            parent._virtual = max(parent._virtual, node._start)
            node._is_waiting = False
            parent._count -= 1
            if node._count:
                node._start = max(parent._virtual, node._finish)  # the former if a limit held it
                parent._push(node)
            node = parent

    def spend(self, size: float, now_ms: int) -> None:
        """Correct what passed: so many bytes more than were served."""
        node: Share | None = self
        while node is not None:
            if node.bucket is not None:
                node.bucket.spend(size, now_ms)
            node._finish += size / node.weight
            node = node._parent

    def opens_at_ms(self, now_ms: int) -> int | None:
        """When something that waits below may pass, by the limits; None: not before one changes."""
        if not self.is_waiting:
            return None
        own_ms = self.bucket.opens_at_ms(now_ms) if self.bucket is not None else now_ms
        if own_ms is None or not self._count or own_ms > now_ms:
            return own_ms
        times = [child.opens_at_ms(now_ms) for _, number, child in self._line if child._holds(number)]
        return min((time for time in times if time is not None), default=None)

    def _push(self, child: Share) -> None:
        self._turn += 1
        child._entry = self._turn
        child._is_waiting = True
        self._count += 1
        heappush(self._line, (child._start, self._turn, child))
        if len(self._line) > 2 * self._count + VOID_ENTRIES_MAX:
            self._line = [entry for entry in self._line if entry[2]._holds(entry[1])]
            heapify(self._line)

    def _holds(self, number: int) -> bool:
        return self._is_waiting and self._entry == number

    def _in_turn(self) -> Iterator[Share]:
        """Waiting children; most callers need the first alone."""
        line = self._line
        while line and not line[0][2]._holds(line[0][1]):
            heappop(line)
        if line:
            yield line[0][2]
            for _, _, child in sorted(entry for entry in line[1:] if entry[2]._holds(entry[1])):
                yield child
