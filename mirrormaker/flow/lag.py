"""How far a mirror is behind. Pure.

- Messages: source offsets from the committed position to the end that readers of committed records see.
  Offsets that hold no record (transaction markers, what compaction removed) count too: nobody can tell them
  apart without reading.
- Bytes: messages times the mean size of what the partition's route has copied, or of a sample. An estimate.
- Seconds: how long the first record that is still missing at the destination has been known to be there. The
  daemon watches the source's end and remembers when it passed which offset. Record timestamps do not enter: a
  mirror that copies last year's records within a second is a second behind, not a year.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

SAMPLES_MAX = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Lag of a partition or a route. None: not known."""

    messages: int
    bytes: int | None
    seconds: float | None

    @classmethod
    def total(cls, parts: list[Lag]) -> Lag:
        """Of a whole out of its parts: messages and bytes add up, the oldest decides the seconds."""
        sizes = [part.bytes for part in parts]
        ages = [part.seconds for part in parts]
        return cls(
            messages=sum(part.messages for part in parts),
            bytes=None if None in sizes else sum(size for size in sizes if size is not None),
            seconds=None if None in ages else max((age for age in ages if age is not None), default=0.0),
        )


NO_LAG = Lag(messages=0, bytes=0, seconds=0.0)


class EndHistory:
    """When the end of one source partition was first seen where. Bounded: old samples are thinned out."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[int] = []

    def observe(self, end: int, now_ms: int) -> None:
        """The partition ends at `end`, seen at `now_ms`. A source that shrank starts anew."""
        if self._ends and end < self._ends[-1]:
            self._ends.clear()
            self._times.clear()
        if self._ends and end == self._ends[-1]:
            return
        self._ends.append(end)
        self._times.append(now_ms)
        if len(self._ends) > SAMPLES_MAX:
            del self._ends[1 : SAMPLES_MAX // 2 : 2]
            del self._times[1 : SAMPLES_MAX // 2 : 2]

    def known_since_ms(self, position: int) -> int | None:
        """When the record at `position` was first known to be there; None when it has not been seen yet."""
        index = bisect_right(self._ends, position)
        return self._times[index] if index < len(self._times) else None

    def forget_before(self, position: int) -> None:
        """Drop what is needed no more once everything before `position` is copied."""
        index = bisect_right(self._ends, position)
        del self._ends[: max(index - 1, 0)]
        del self._times[: max(index - 1, 0)]
