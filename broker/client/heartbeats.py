"""Heartbeats of a group's member: a task beside the member's callbacks, for as long as a generation lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from broker.client.backoff import is_retriable
from broker.client.group_offsets import Membership
from broker.client.group_settings import GroupSettings
from broker.client.member_requests import MemberRequests
from broker.client.turns import Turn, Turns
from broker.errors import BrokerError
from broker.telemetry import logger

_log = logger("group")


class Heartbeats:
    """Tells the coordinator that a member is alive, and asks for a turn when that is no longer so."""

    def __init__(
        self,
        settings: GroupSettings,
        requests: MemberRequests,
        turns: Turns,
        retry_delay_ms: Callable[[int], float],
    ) -> None:
        """`retry_delay_ms` tells how long to wait after so many failures."""
        self._settings = settings
        self._requests = requests
        self._turns = turns
        self._retry_delay_ms = retry_delay_ms
        self._is_running = False
        self._sure_from = 0.0
        """When the coordinator counts the session from at the earliest, on the event loop's clock."""
        self._heard_at = 0.0
        """When the member asked to be taken for alive and was, the last time, on the event loop's clock: the
        answer may have lain here long, where the process stood still.
        """

    @property
    def is_silent(self) -> bool:
        """Whether the coordinator has not been heard of for longer than a session lasts."""
        silent_ms = (asyncio.get_running_loop().time() - self._heard_at) * 1000
        return silent_ms > self._settings.session_timeout_ms

    @property
    def is_in_doubt(self) -> bool:
        """Whether the coordinator may have given what the member has to others, in this generation."""
        return self._is_running and self.is_silent

    @property
    def sure_until_ms(self) -> float:
        """When the coordinator may give it to others at the earliest, on the event loop's clock."""
        return self._sure_from * 1000 + self._settings.session_timeout_ms

    @asynccontextmanager
    async def running(self, membership: Callable[[], Membership], asked_at: float) -> AsyncIterator[None]:
        """Heartbeats until the end of the `with`, each for the `membership` of its moment. `asked_at`: when
        the member asked for its share, on the event loop's clock.
        """
        self._sure_from, self._heard_at, self._is_running = asked_at, asyncio.get_running_loop().time(), True
        name = f"heartbeats of group {self._settings.group_id}"
        beating = asyncio.create_task(self._beat(membership), name=name)
        beating.add_done_callback(self._on_ended)
        try:
            yield
        finally:
            self._is_running = False
            beating.cancel()
            await asyncio.wait([beating])
        if not beating.cancelled():
            beating.result()

    def _on_ended(self, beating: asyncio.Task[None]) -> None:
        if not beating.cancelled():
            self._turns.ask(Turn.LOST)

    async def _beat(self, membership: Callable[[], Membership]) -> None:
        failures = 0
        while self._turns.asked is not Turn.LOST:
            await asyncio.sleep(self._pause_ms(failures) / 1000)
            asked_at = asyncio.get_running_loop().time()
            try:
                if await self._requests.heartbeat(membership()):
                    self._turns.ask(Turn.REJOIN)
                self._sure_from = self._heard_at = asked_at
                failures = 0
            except BrokerError as error:
                if not is_retriable(error):
                    _log.warning("heartbeat_refused", group=self._settings.group_id, error=str(error))
                    self._turns.ask(Turn.LOST)
                    return
                failures += 1
            if self.is_silent:
                self._turns.ask(Turn.LOST)

    def _pause_ms(self, failures: int) -> float:
        return self._retry_delay_ms(failures) if failures else self._settings.heartbeat_interval_ms
