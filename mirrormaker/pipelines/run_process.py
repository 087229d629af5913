"""The process of one run, as a daemon sees it (`child` is its inside)."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from broker.child_process import dying_with_parent
from mirrormaker.pipelines.orders import RunEnd, RunOrder, decode_end

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
            process.stdin.write(order.encode())
            await process.stdin.drain()
            process.stdin.close()
        return cls(process)

    async def ended(self) -> RunEnd:
        """Return when it has ended."""
        output, _ = await self._process.communicate()
        assert self._process.returncode is not None
        return decode_end(self._process.returncode, output)

    def terminate(self) -> None:
        """SIGTERM: it ends its run early."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
