"""What keeps the children of `mirrormaker up` running: one that ended by itself is started again.

The wait before that grows with every end that follows soon after a start, so that a child that cannot run
(its disk is full, its port is taken) neither floods the log nor keeps the machine busy. When the keeper is
cancelled nothing is started any more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.client.backoff import Backoff, Random
from broker.clock import Clock
from broker.errors import BrokerError
from broker.telemetry import logger

LOOK_SECONDS = 1.0
RESTART_BACKOFF = Backoff(initial_ms=500, max_ms=30_000)
GOOD_RUN_MS = 60_000
"""A child that ran so long starts its waits anew."""

_log = logger("child_keeper")


class Children(Protocol):
    """The child processes, by name."""

    def ended(self) -> Mapping[str, str]:
        """Those that ended by themselves, with the end of their logs."""
        ...

    def restart(self, name: str) -> None:
        """Start one of those again; it need not be ready at once. Raises BrokerError."""
        ...


@dataclass(slots=True)
class _Ends:
    """How often a child ended soon after its start, and when it is due to be started again."""

    failures: int = 0
    started_ms: int | None = None
    due_ms: float | None = None


class ChildKeeper:
    """See the module's description. Owned by the event loop."""

    def __init__(self, children: Children, clock: Clock, *, random: Random = random.random) -> None:
        self._children = children
        self._clock = clock
        self._random = random
        self._ends: dict[str, _Ends] = {}

    async def run(self) -> None:
        """Look again and again; ends by cancellation."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Tell of children that ended, and start again those whose wait is over."""
        now_ms = self._clock.monotonic_ms()
        for name, log in self._children.ended().items():
            ends = self._ends.setdefault(name, _Ends())
            if ends.due_ms is None:
                self._wait(ends, now_ms)
                _log.error("child_ended", child=name, failures=ends.failures, log=log)
            if ends.due_ms is not None and now_ms >= ends.due_ms:
                self._restart(name, ends, now_ms)

    def _wait(self, ends: _Ends, now_ms: int) -> None:
        ran_well = ends.started_ms is not None and now_ms - ends.started_ms > GOOD_RUN_MS
        ends.failures = 1 if ran_well else ends.failures + 1
        ends.due_ms = now_ms + RESTART_BACKOFF.delay_ms(ends.failures, self._random)

    def _restart(self, name: str, ends: _Ends, now_ms: int) -> None:
        ends.started_ms, ends.due_ms = now_ms, None
        try:
            self._children.restart(name)
        except BrokerError as error:
            self._wait(ends, now_ms)
            _log.error("child_not_restarted", child=name, failures=ends.failures, reason=str(error))
        else:
            _log.info("child_restarted", child=name)
