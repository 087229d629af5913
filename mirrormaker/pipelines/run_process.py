"""The process of one run, as a daemon sees it (`child` is its inside)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from broker.child_process import dying_with_parent
from mirrormaker.pipelines.orders import RunEnd, RunOrder, decode_end
from mirrormaker.pipelines.tenure import encode_term

OUTPUT_BYTES_MAX = 1 << 26
END_SECONDS = 20.0
"""How long Spark's JVM, and what else is left of a run, may take to end when its process has ended."""
CHILD = (sys.executable, "-m", "mirrormaker.pipelines.child")


class _Watch(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells when the process has ended, whoever still has its pipes open."""

    def __init__(self) -> None:
        super().__init__(limit=OUTPUT_BYTES_MAX, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class RunProcess:
    """One run, from its start to its end."""

    def __init__(
        self, transport: asyncio.SubprocessTransport, watch: _Watch, end_seconds: float = END_SECONDS
    ) -> None:
        process = asyncio.subprocess.Process(transport, watch, asyncio.get_running_loop())
        self.pid = process.pid
        self._process = process
        self._transport = transport
        self._exited = watch.exited
        self._end_seconds = end_seconds
        self._has_ended = False
        """With all that it has started."""

    @classmethod
    async def start(
        cls, order: RunOrder, *, command: Sequence[str] = CHILD, end_seconds: float = END_SECONDS
    ) -> RunProcess:
        """Start it; its log goes where this process's does. Raises OSError."""
        transport, watch = await asyncio.get_running_loop().subprocess_exec(
            _Watch,
            *dying_with_parent(command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            start_new_session=True,
        )
        started = cls(transport, watch, end_seconds)
        await started._tell(order)
        return started

    async def ended(self) -> RunEnd:
        """Return when it has ended, with all that it has started: a JVM that stands still is killed."""
        assert self._process.stdout is not None
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._process.stdout.read())
            await self._exited.wait()
            for end in (self.kill, self._transport.close):  # the latter for what has left the process group
                await asyncio.wait([reading], timeout=self._end_seconds)
                if not reading.done():
                    end()
        self._has_ended = True
        code = self._process.returncode
        assert code is not None
        return decode_end(code, reading.result())

    async def _tell(self, order: RunOrder) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(order.encode() + b"\n")
            await self._process.stdin.drain()

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
        if not self._has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
