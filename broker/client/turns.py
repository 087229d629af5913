"""Why a member's generation ends: asked for by whoever sees a reason, waited for by the membership."""

from __future__ import annotations

import asyncio
from enum import Enum


class Turn(Enum):
    """Why a generation ends."""

    REJOIN = "rejoin"
    LOST = "lost"
    CLOSE = "close"


class Turns:
    """The one turn that is asked for at the moment, if any."""

    def __init__(self) -> None:
        self.asked: Turn | None = None
        self._changed = asyncio.Event()

    def ask(self, turn: Turn) -> None:
        """Ask for the end of the generation; closing outweighs being lost, which outweighs rejoining."""
        if self.asked is None or turn is Turn.CLOSE or (turn is Turn.LOST and self.asked is Turn.REJOIN):
            self.asked = turn
        self._changed.set()

    def clear(self) -> None:
        """Joining answers whatever asked for it so far."""
        self.asked = None
        self._changed.clear()

    async def wait(self) -> None:
        """Return when a turn is, or has been, asked for."""
        await self._changed.wait()

    async def wait_for_any(self) -> None:
        """Return when something new is asked for; what was asked for before, but for closing, is answered."""
        if self.asked is not Turn.CLOSE:
            self.clear()
        await self.wait()

    async def wait_for_close(self) -> None:
        """Return when the membership is to be closed, whatever else is asked for meanwhile."""
        while self.asked is not Turn.CLOSE:
            self._changed.clear()
            await self._changed.wait()
