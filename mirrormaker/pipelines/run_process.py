"""The process of one run, as a daemon sees it (`child` is its inside)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

from broker.child_process import dying_with_parent
from mirrormaker.pipelines.orders import RunEnd, RunOrder, decode_end
from mirrormaker.pipelines.tenure import encode_term

OUTPUT_BYTES_MAX = 1 << 26


class RunProcess:
    """One run, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, order: RunOrder) -> RunProcess:
        """Start it; its log goes where this process's does. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *dying_with_parent([sys.executable, "-m", "mirrormaker.pipelines.child"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=OUTPUT_BYTES_MAX,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(order.encode() + b"\n")
            await process.stdin.drain()
        return cls(process)

    async def ended(self) -> RunEnd:
        """Return when it has ended."""
        assert self._process.stdout is not None
        output = await self._process.stdout.read()
        return decode_end(await self._process.wait(), output)

    def extend(self, until_ms: float | None) -> None:
        """It may go on until then; see `tenure`."""
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(encode_term(until_ms))

    def terminate(self) -> None:
        """SIGTERM: it ends its run early."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, to its JVM too, which would else live on for as long as it takes to find out."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
