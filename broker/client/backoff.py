"""Waiting between attempts: bounded exponential backoff with jitter, and which errors deserve another
attempt.

Randomness and time are handed in, so that a simulator can own both.
"""

from __future__ import annotations

import asyncio
import random as standard_random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from broker.clock import Clock, SystemClock
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError

Random = Callable[[], float]
"""A source of numbers from 0 (included) to 1 (excluded)."""

system_random: Random = standard_random.random

_EXPONENT_MAX = 30
"""Attempts beyond this wait no longer: the factor is far above any maximum by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before attempt n + 1, in milliseconds;

    `jitter` is the share by which a wait varies either way.
    """

    initial_ms: float = 50.0
    max_ms: float = 1_000.0
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, attempt: int, random: Random) -> float:
        """The wait after `attempt` failures in a row (1 is the first)."""
        exponent = min(max(attempt - 1, 0), _EXPONENT_MAX)
        delay = min(self.max_ms, self.initial_ms * self.multiplier**exponent)
        return delay * (1.0 + self.jitter * (2.0 * random() - 1.0))


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed later: a lost connection, a missing answer, or a code that says
    so.
    """
    if isinstance(error, ProtocolError):
        return error.code.retriable
    return isinstance(error, ConnectionFailedError | RequestTimedOutError)


class Retries:
    """One operation's attempts within a time limit.

    retries = Retries(Backoff(), timeout_ms=30_000)
    while True:
        try:
            return await attempt()
        except BrokerError as error:
            await retries.pause(error)
    """

    def __init__(
        self,
        backoff: Backoff,
        *,
        timeout_ms: float,
        random: Random = system_random,
        clock: Clock | None = None,
    ) -> None:
        self._backoff = backoff
        self._random = random
        self._clock = clock or SystemClock()
        self._deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._failures = 0

    @property
    def remaining_ms(self) -> float:
        """Time left for attempts; never negative."""
        return max(0.0, self._deadline_ms - self._clock.monotonic_ms())

    async def pause(self, error: BrokerError, *, also: Collection[ErrorCode] = ()) -> None:
        """Wait before the next attempt; `also` are codes that this operation tries again. Raises `error` when
        it is not retriable or the time is up.
        """
        self._failures += 1
        delay_ms = self._backoff.delay_ms(self._failures, self._random)
        is_listed = isinstance(error, ProtocolError) and error.code in also
        if not (is_listed or is_retriable(error)) or delay_ms >= self.remaining_ms:
            raise error
        await asyncio.sleep(delay_ms / 1000)
