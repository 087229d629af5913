"""A worker as its daemon has it: a process that dies with it, its orders and its pictures."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from broker.child_process import dying_with_parent
from mirrormaker.workers.orders import LINE_BYTES_MAX, Order, decode_picture, encode_order


class WorkerProcess:
    """One process, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._process = process
        self._orders = process.stdin
        self._pictures = process.stdout

    @classmethod
    async def start(cls, daemon_id: str, log_level: str) -> WorkerProcess:
        """Start it; which worker it is it has to be told. Its log goes where this process's does. To be
        called in the thread that lives as long as the worker should. Raises OSError.
        """
        command = [sys.executable, "-m", "mirrormaker.worker"]
        options = ["--daemon", daemon_id, "--log-level", log_level]
        process = await asyncio.create_subprocess_exec(
            *dying_with_parent([*command, *options]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # an interrupt from a terminal is for the daemon to pass on
        )
        return cls(process)

    @property
    def has_ended(self) -> bool:
        """As far as this process has been told."""
        return self._process.returncode is not None

    def order(self, order: Order) -> None:
        """Tell it something; nothing happens when it is gone."""
        if not self._orders.is_closing():
            self._orders.write(encode_order(order))

    async def picture(self, timeout_ms: float) -> dict[str, Any] | None:
        """The next picture, None when there will be no more.

        Raises TimeoutError when it is silent, GarbledLineError.
        """
        async with asyncio.timeout(timeout_ms / 1000):
            line = await self._pictures.readline()
        return decode_picture(line) if line else None

    def terminate(self) -> None:
        """SIGTERM: it finishes what is in flight."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Return when it has ended: its exit code, or minus the signal."""
        code = await self._process.wait()
        self._orders.close()
        with contextlib.suppress(OSError):
            await self._orders.wait_closed()
        return code
