"""When a group's timers are due, fair to members when this process itself was late.

A timer that comes up much later than it was due says more about this process (a stalled event loop, a
suspended machine) than about the member it watches: the heartbeats that would have moved it are still waiting
to be read. So a timer that is later than `lateness_max_ms` is put off once, by as long as it was late but not
longer than its own delay. The second time it counts, on time or not; setting the timer anew gives it its
chance back.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deadline:
    due_ms: int
    delay_ms: int
    was_put_off: bool


class Deadlines(Generic[Key]):
    """Deadlines by key, on whatever monotonic clock the owner passes in; pure."""

    def __init__(self, lateness_max_ms: int) -> None:
        self._lateness_max_ms = lateness_max_ms
        self._deadlines: dict[Key, _Deadline] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Key, delay_ms: int, now_ms: int) -> None:
        """Make `key` due `delay_ms` from now, whatever it was before."""
        self._deadlines[key] = _Deadline(due_ms=now_ms + delay_ms, delay_ms=delay_ms, was_put_off=False)

    def cancel(self, key: Key) -> None:
        """Forget `key`; nothing happens when it is not set."""
        self._deadlines.pop(key, None)

    def clear(self) -> None:
        self._deadlines.clear()

    @property
    def next_due_ms(self) -> int | None:
        """The earliest deadline."""
        return min((deadline.due_ms for deadline in self._deadlines.values()), default=None)

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the earliest key that is due, None when none is. Ones that are too late are put
        off on the way.
        """
        while self._deadlines:
            key, deadline = min(self._deadlines.items(), key=_due_ms)
            if deadline.due_ms > now_ms:
                return None
            late_ms = now_ms - deadline.due_ms
            if late_ms <= self._lateness_max_ms or deadline.was_put_off:
                del self._deadlines[key]
                return key
            grace_ms = max(min(late_ms, deadline.delay_ms), 1)
            self._deadlines[key] = _Deadline(
                due_ms=now_ms + grace_ms, delay_ms=deadline.delay_ms, was_put_off=True
            )
        return None


def _due_ms(item: tuple[object, _Deadline]) -> int:
    return item[1].due_ms
