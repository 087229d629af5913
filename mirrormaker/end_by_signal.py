"""SIGTERM and SIGINT end a process also where something in it hangs: its event loop, as in a function that
never returns, or a thread, as on a disk that does not answer.

The loop is asked to stop as ever. Where it is not closed `END_SECONDS` later, the process ends where it is:
what it had not committed is copied again, as after any crash. What comes behind the loop has its own time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from broker.telemetry import logger

END_SECONDS = 28.0
"""Workers and routes have a little less; orchestrators that kill wait for half a minute."""
_LOOK_SECONDS = 1.0
_POOL_THREADS = "asyncio_"
"""The names of those that `asyncio.to_thread` has begin so, and `_IDLE` is where they wait for work."""
_IDLE = "_worker"


def end_by_signal(stop: Callable[[], None], *, end_seconds: float = END_SECONDS) -> None:
    """Have the running event loop call `stop` at SIGTERM and SIGINT, and the process end with 128 and the
    signal's number when the loop is not closed so long after that. By the main thread.
    """
    loop, signals = asyncio.get_running_loop(), list[signal.Signals]()
    is_asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        """Also amid a function that hangs."""
        signals.append(signal.Signals(number))
        is_asked.set()
        if not loop.is_closed():  # else all is over but what comes behind the loop
            loop.call_soon_threadsafe(stop)

    def watch() -> None:
        is_asked.wait()
        left_seconds = end_seconds
        while left_seconds > 0 and not loop.is_closed():  # time in which the process stands still is no time
            threading.Event().wait(min(left_seconds, _LOOK_SECONDS))
            left_seconds -= _LOOK_SECONDS
        if not loop.is_closed():
            _end(signals[0], end_seconds)

    threading.Thread(target=watch, name="end-by-signal", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


def _end(number: signal.Signals, after_seconds: float) -> NoReturn:
    logger("daemon").error(
        "ended_amid_a_hang", signal=number.name, after_seconds=after_seconds, where=list(_busy_places())
    )
    sys.stderr.flush()
    os._exit(128 + number)


def _busy_places() -> Iterator[str]:
    """Where the main thread is, and those that it has given something to do."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is None or not (thread is threading.main_thread() or thread.name.startswith(_POOL_THREADS)):
            continue
        where = traceback.extract_stack(frame)[-1]
        if where.name != _IDLE:
            yield f"{where.filename}:{where.lineno} in {where.name}"
