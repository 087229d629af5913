"""Room for answers that are converted for old clients: each waits its turn while too many are unsent.

What is sent from log files costs a node nothing while a client takes its time; converted bytes are held. So
an answer has `ANSWER_MAX` bytes, and what a single batch takes above that, and all of them together
`HELD_MAX`, which is exceeded by one answer at most. An answer's room comes back once it was sent, or with the
end of its connection.

Who waits must not depend on clients that never read: when that takes `STALLED_AFTER_MS`, the connection that
stood still for longest, and for so long, with an answer to be sent to it is closed.

Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from broker.clock import Clock
from broker.server.request import Session
from broker.server.request_memory import RequestMemory
from broker.telemetry import logger

log = logger("conversions")

ANSWER_MAX = 4 << 20
HELD_MAX = 32 << 20
CONVERTED_TOGETHER_MAX = 2
"""Answers that are made in threads at the same time: of each, one batch is unpacked."""
STALLED_AFTER_MS = 10_000


class _Room(NamedTuple):
    size: int
    ready_ms: int | None
    """When its answer was there to be sent, by the monotonic clock; None before."""


class Conversions:
    """See the module's description; sizes in bytes."""

    def __init__(
        self, clock: Clock, *, held_max: int = HELD_MAX, stalled_after_ms: int = STALLED_AFTER_MS
    ) -> None:
        self.slots = asyncio.Semaphore(CONVERTED_TOGETHER_MAX)
        """Whoever converts takes one."""
        self._clock = clock
        self._stalled_after_ms = stalled_after_ms
        self._memory = RequestMemory(held_max)
        self._rooms: dict[Session, _Room] = {}

    @property
    def held(self) -> int:
        """Bytes of all answers under way."""
        return sum(room.size for room in self._rooms.values())

    async def take_room(self, session: Session) -> bool:
        """Return once there is room for an answer to `session`; whether that took a while."""
        has_waited = not self._memory.is_free
        while True:
            try:
                async with asyncio.timeout(self._stalled_after_ms / 1000):
                    await self._memory.take(ANSWER_MAX)
                break
            except TimeoutError:
                self._close_stalled()
        self._give_room(session)
        self._rooms[session] = _Room(ANSWER_MAX, None)
        session.release_when_sent(partial(self._give_room, session))
        return has_waited

    def settle(self, session: Session, size: int) -> None:
        """Say what the answer came to that is now to be sent."""
        room = self._rooms.get(session)
        if room is not None:
            self._rooms[session] = _Room(size, self._clock.monotonic_ms())
            self._memory.give(room.size - size)

    def _give_room(self, session: Session) -> None:
        room = self._rooms.pop(session, None)
        if room is not None:
            self._memory.give(room.size)

    def _close_stalled(self) -> None:
        now_ms = self._clock.monotonic_ms()
        still_ms, stalled = max(
            (
                (now_ms - max(session.last_active_ms, room.ready_ms), session)
                for session, room in self._rooms.items()
                if room.ready_ms is not None and room.size
            ),
            key=lambda found: found[0],
            default=(0, None),
        )
        if stalled is not None and still_ms >= self._stalled_after_ms:
            log.warning("stalled_reader_closed", peer=str(stalled.peer), still_ms=still_ms)
            stalled.abort()
