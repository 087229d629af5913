"""How far a mirror is behind. Pure.

- Messages: source offsets from the committed position to the end that readers of committed records see.
  Offsets that hold no record (transaction markers, what compaction removed) count too: nobody can tell them
  apart without reading.
- Bytes: messages times the mean size of what the partition's route has copied, or of a sample. An estimate.
- Seconds: how long the first record that is still missing at the destination has been at the source. It
  says so itself by its timestamp; but that is the producer's, so it counts only as far as the source's end
  bears it out: the daemon remembers when the end passed which offset, and a record came after the last look
  that did not find it, and before the first that did. So a mirror that copies last year's records within a
  second is a second behind, not a year, and one that comes back after an hour is an hour behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from broker.types import TopicPartition

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

    __slots__ = ("_ends", "_seen", "_times", "heard_ms", "start")

    def __init__(self) -> None:
        self.start = -1
        """First offset that the source still has; -1: it does not tell."""
        self.heard_ms = 0
        """When the source told its end last."""
        self._ends: list[int] = []
        self._times: list[int] = []
        """When each end was seen first."""
        self._seen: list[int] = []
        """When it was asked for last and was still the end."""

    def hear(self, now_ms: int, asked_ms: int) -> None:
        """The source told at `now_ms` that nothing had come when it was asked at `asked_ms`."""
        self.heard_ms = now_ms
        if self._seen:
            self._seen[-1] = asked_ms

    def observe(
        self, end: int, now_ms: int, asked_ms: int | None = None, *, unchanged_ms: int | None = None
    ) -> None:
        """The partition ends at `end`, seen at `now_ms` in the answer to what was asked at `asked_ms`. A
        source that shrank starts anew; an answer that was under way when a later end was seen is just late.
        `unchanged_ms`: when it was asked before, and had nothing new to tell.
        """
        asked_ms = now_ms if asked_ms is None else asked_ms
        if unchanged_ms is not None and self._seen:
            self._seen[-1] = max(self._seen[-1], unchanged_ms)
        self.heard_ms = now_ms
        if self._ends and end < self._ends[-1]:
            if asked_ms < self._times[-1]:
                return
            self._ends.clear()
            self._times.clear()
            self._seen.clear()
        if self._ends and end == self._ends[-1]:
            self._seen[-1] = asked_ms
            return
        self._ends.append(end)
        self._times.append(now_ms)
        self._seen.append(asked_ms)
        if len(self._ends) > SAMPLES_MAX:
            for samples in (self._ends, self._times, self._seen):
                del samples[1 : SAMPLES_MAX // 2 : 2]

    def known_since_ms(self, position: int) -> int | None:
        """When the record at `position` was first known to be there; None when it has not been seen yet."""
        index = bisect_right(self._ends, position)
        return self._times[index] if index < len(self._times) else None

    def absent_until_ms(self, position: int) -> int | None:
        """When the record at `position` was certainly not there yet; None when that has never been seen."""
        index = bisect_right(self._ends, position)
        return self._seen[index - 1] if index else None

    def arrived_ms(self, position: int, timestamp_ms: int | None) -> int | None:
        """When the record at `position` came to the source: the time that it says, on the clock of the other
        times, as far as what was seen of the source's end bears that out; None: it has not been seen.
        """
        index = bisect_right(self._ends, position)
        if index == len(self._times):
            return None
        latest_ms = self._times[index]
        if timestamp_ms is None or timestamp_ms > latest_ms:
            return latest_ms
        return max(timestamp_ms, self._seen[index - 1]) if index else timestamp_ms

    def forget_before(self, position: int) -> None:
        """Drop what is needed no more once everything before `position` is copied."""
        drop = max(bisect_right(self._ends, position) - 1, 0)
        for samples in (self._ends, self._times, self._seen):
            del samples[:drop]


BeginHistory = Callable[[TopicPartition, int], EndHistory]
"""For a partition that is copied from an offset on."""


def unseen_history(_source: TopicPartition, _position: int) -> EndHistory:
    """Nobody knows when it came."""
    return EndHistory()
