"""SIGTERM and SIGINT end a process also where its event loop hangs, as in a function that never returns.

The loop is asked to stop as ever. A thread looks whether it still turns; where it does not for
`HANG_SECONDS`, the process ends where it is: what it had not committed is copied again, as after any crash.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from broker.telemetry import logger

HANG_SECONDS = 25.0
"""So long a worker may take to end, too; orchestrators that kill wait for half a minute."""
_LOOK_SECONDS = 1.0


def end_by_signal(stop: Callable[[], None], *, hang_seconds: float = HANG_SECONDS) -> None:
    """Have the running event loop call `stop` at SIGTERM and SIGINT, and the process end with 128 and the
    signal's number when the loop does not turn for so long after that. By the main thread.
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
        while _turns(loop, hang_seconds):
            threading.Event().wait(_LOOK_SECONDS)
        if not loop.is_closed():
            _end(signals[0], hang_seconds)

    threading.Thread(target=watch, name="end-by-signal", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)


def _turns(loop: asyncio.AbstractEventLoop, patience_seconds: float) -> bool:
    has_turned = threading.Event()
    try:
        loop.call_soon_threadsafe(has_turned.set)
    except RuntimeError:  # it is closed
        return False
    # a process that was stopped meanwhile finds its time over before it could do anything
    return has_turned.wait(patience_seconds) or has_turned.wait(_LOOK_SECONDS)


def _end(number: signal.Signals, after_seconds: float) -> NoReturn:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    where = traceback.extract_stack(frame)[-1] if frame is not None else None
    logger("daemon").error(
        "ended_amid_a_hang",
        signal=number.name,
        after_seconds=after_seconds,
        where=None if where is None else f"{where.filename}:{where.lineno} in {where.name}",
    )
    sys.stderr.flush()
    os._exit(128 + number)
