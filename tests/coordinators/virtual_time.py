"""An event loop whose time passes only while nothing else is to be done, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
START_MS = 1_700_000_000_000


class _VirtualSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("the test waits for something that will never come")
        if not ready:
            self.now += max(timeout or 0, 0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs on virtual time; a wait for nothing fails instead of hanging."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def stall(self, seconds: float) -> None:
        """Time passes and the loop does nothing, as when the machine is suspended."""
        self._virtual.now += seconds


class VirtualClock:
    """The clock port on the running loop's time."""

    def now_ms(self) -> int:
        return START_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000)


def run(test: Coroutine[Any, Any, Result]) -> Result:
    """Run a test on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test)


def stall(milliseconds: int) -> None:
    """Let the running loop lose time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stall(milliseconds / 1_000)
