"""Heartbeats of a group's member: a task beside the callbacks, for as long as a generation lasts; and one
beside the next join, where the member keeps what it has meanwhile.

The answer to a join waits for the other members, and no answer tells nothing: the coordinator may be cut off,
and have given what the member has to others a session later.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from broker.client.backoff import is_retriable
from broker.client.group_offsets import Membership
from broker.client.group_settings import GroupSettings
from broker.client.member_requests import MemberRequests
from broker.client.turns import Turn, Turns
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger

_NO_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})

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
        self._calm_from = 0.0
        """When no rebalance was under way, the last time, on the event loop's clock."""

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
    def may_be_out(self) -> bool:
        """Whether a member that joins again may be none any more: the coordinator has not been heard of, or
        has waited for as long as it waits for joins.
        """
        joining_ms = (asyncio.get_running_loop().time() - self._calm_from) * 1000
        return self.is_silent or joining_ms > self._settings.rebalance_timeout_ms

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
        self._calm_from = self._heard_at
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

    @asynccontextmanager
    async def beside_a_join(
        self, membership: Callable[[], Membership], requests: MemberRequests
    ) -> AsyncIterator[None]:
        """Heartbeats until the end of the `with`, for a member that keeps what it has while it joins again.
        `requests`: not over the connection on which the join waits.
        """
        name = f"heartbeats of group {self._settings.group_id} beside its join"
        beating = asyncio.create_task(self._stay_known(membership, requests), name=name)
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])
        if not beating.cancelled():
            beating.result()

    def joined(self) -> None:
        """The coordinator has let the member into the next generation."""
        self._calm_from = asyncio.get_running_loop().time()

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
                else:
                    self._calm_from = asked_at
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

    async def _stay_known(self, membership: Callable[[], Membership], requests: MemberRequests) -> None:
        """Asked on behalf of a generation that is over, the coordinator tells nothing."""
        failures = 0
        while True:
            await asyncio.sleep(self._pause_ms(failures) / 1000)
            asked_at = asyncio.get_running_loop().time()
            try:
                is_rebalance = await requests.heartbeat(membership())
            except BrokerError as error:
                failures = failures + 1 if is_retriable(error) else 0
                if isinstance(error, ProtocolError) and error.code in _NO_MEMBER:
                    self._heard_at = -math.inf
                    return  # the answer to the join says so too
                continue
            failures, self._heard_at = 0, asked_at
            if not is_rebalance:
                self._calm_from = asked_at

    def _pause_ms(self, failures: int) -> float:
        return self._retry_delay_ms(failures) if failures else self._settings.heartbeat_interval_ms
