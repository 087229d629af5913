"""How much a route with a limit may fetch ahead of what it may send. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker.client.fetch import PartitionPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes, of new records and of old ones: what is left of both. None: as much as the buffers hold."""

    live: int | None = None
    behind: int | None = None

    def for_one_of(self, fetchers: int) -> Room:
        """The part of one of several fetches at a time."""
        if self.live is None and self.behind is None:
            return self
        return Room(live=_part(self.live, fetchers), behind=_part(self.behind, fetchers))

    def bound(self, wanted: int, *, is_behind: bool) -> int:
        """How much of `wanted` bytes of a partition may be asked for."""
        room = self.behind if is_behind else self.live
        return wanted if room is None else min(wanted, max(room, 0))

    def bound_answer(self, wanted: int) -> int:
        """How much of `wanted` bytes of all partitions may be asked for."""
        if self.live is None or self.behind is None:
            return wanted
        return min(wanted, max(self.live, 0) + max(self.behind, 0))


NO_BOUND = Room()


def new_first(positions: list[tuple[bool, PartitionPosition]]) -> list[PartitionPosition]:
    """Those that are not behind first: brokers fill an answer in the order asked."""
    return [position for _, position in sorted(positions, key=lambda each: each[0])]


def _part(room: int | None, fetchers: int) -> int | None:
    return None if room is None else room // fetchers
