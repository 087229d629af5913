"""A pipeline held for what a command or a job does to it: no daemon and no command on another host does
anything to it meanwhile. Whoever loads, writes windows anew or compacts while somebody else does loses rows.

A command that has its own daemon beside it, which holds the pipeline, goes by that one's hold: they exclude
each other by the lock of the folder that both have. Otherwise it is a member of the pipeline's group as
daemons are (`share`). Owned by the thread that enters; the agreeing goes on in another.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from threading import Event, Thread

from broker.client.admin import Admin
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError
from mirrormaker.clusters import open_cluster
from mirrormaker.pipelines.run_marks import digest_of, is_bound
from mirrormaker.pipelines.share import (
    HEARTBEAT_INTERVAL_MS,
    PRIZE,
    SESSION_TIMEOUT_MS,
    UNKNOWN_YET,
    SharedPipeline,
    ShareWish,
    client_id,
    group_of,
)
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import ClusterSpec, PipelineSpec, Topology

LOOK_INTERVAL_MS = 500
LEAVE_SECONDS = 3.0
_STANDARD_ERROR = 2
_SURE_MS = SESSION_TIMEOUT_MS - 2 * HEARTBEAT_INTERVAL_MS
"""For how long nobody else holds what the daemon beside held when its group was asked: what that has heard of
the daemon last may be so much older.
"""
_SETTLED = frozenset({"Stable", "Empty", "Dead"})
"""States of a group that has said who has the prize."""
_LOST = "it is not certain any more that it is held here: another daemon may run it"


class _Holder(Enum):
    """Who has the pipeline, by its group."""

    BESIDE = "the daemon on this `data_dir`"
    ELSEWHERE = "another"
    NOBODY = "nobody"
    UNDECIDED = "nobody else as yet"


class HeldElsewhereError(ConfigurationError):
    """Somebody else holds the pipeline, or nobody can be asked; `reason` says who or why."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__([f"{where}: {reason}"])
        self.reason = reason


@contextmanager
def held(
    topology: Topology, pipeline: PipelineSpec, clock: Clock, on_lost: Callable[[str], None]
) -> Iterator[None]:
    """While nobody else runs the pipeline, on whichever host; nothing is agreed on about one that names no
    cluster, or where daemons cannot agree. `on_lost` is called with the reason, in another thread, once that
    is certain no longer. Raises HeldElsewhereError, ConfigurationError.
    """
    if pipeline.cluster is None:
        yield
        return
    hold = _Hold(topology, pipeline, topology.clusters[pipeline.cluster], clock, on_lost)
    thread = Thread(target=hold.main, name=f"hold of {pipeline.name}", daemon=True)
    thread.start()
    try:
        hold.settled.wait()
        if hold.refusal is not None:
            cluster = f"pipelines[{topology.pipelines.index(pipeline)}].cluster"
            where = cluster if hold.is_in_trouble else f"pipeline {pipeline.name!r}"
            raise HeldElsewhereError(where, hold.refusal)
        yield
    finally:
        hold.end()
        thread.join()


def end_at_once(reason: str) -> None:
    """End this process, whatever it is doing: another may begin to do the same."""
    os.write(_STANDARD_ERROR, f"{reason}: this ends here\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


class _Hold:
    """See the module; `settled` is set once it is known whether the pipeline is held, or `refusal` says why
    not.
    """

    def __init__(
        self,
        topology: Topology,
        pipeline: PipelineSpec,
        cluster: ClusterSpec,
        clock: Clock,
        on_lost: Callable[[str], None],
    ) -> None:
        self.settled = Event()
        self.refusal: str | None = None
        self.is_in_trouble = False
        """It was refused because the cluster cannot be asked."""
        self._state = StateDirectory(topology.data_dir)
        self._pipeline = pipeline
        self._cluster = cluster
        self._clock = clock
        self._on_lost = on_lost
        wish = ShareWish(
            cluster=cluster,
            generation=topology.generation,
            digest=digest_of(pipeline),
            is_bound=is_bound(pipeline),
            claims=False,
        )
        try:
            self._daemon_id = self._state.daemon_id()
        except OSError as error:
            raise ConfigurationError([f"{self._state.path}: cannot be written: {error.strerror}"]) from error
        self._share = SharedPipeline(pipeline.name, wish, self._daemon_id, socket.gethostname(), clock)
        self._share.attendant = self
        self._sure_until_ms = math.inf
        """Until when nobody else has what the daemon beside held when its group was asked last."""
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()

    def main(self) -> None:
        """Hold it until `end`."""
        try:
            self._loop.run_until_complete(self._run())
        except (BrokerError, OSError) as error:
            self.is_in_trouble = True
            self._lose(str(error))
        finally:
            self._loop.close()

    def end(self) -> None:
        """Give it up; from another thread."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._ending.set)

    async def _run(self) -> None:
        asked_ms = self._clock.monotonic_ms()
        if self._state.is_locked() and await self._find_holder() is _Holder.BESIDE:
            self._sure_until_ms = asked_ms + _SURE_MS
            self.settled.set()
            await self._watch_daemon()
        if not self._ending.is_set():
            await self._take_part()

    # ---- by the daemon on this `data_dir`

    async def _watch_daemon(self) -> None:
        """Until `end`, or that one holds it no longer, or nobody can be asked for too long."""
        holder: _Holder | None = _Holder.BESIDE
        while self._is_sure() and holder is not _Holder.NOBODY and self._state.is_locked():
            await self._rest()
            holder = await self._ask()

    def _is_sure(self) -> bool:
        """Whether nobody else can have what is held, if it is held by now."""
        return not self._ending.is_set() and self._clock.monotonic_ms() < self._sure_until_ms

    async def _ask(self) -> _Holder | None:
        """Who has it; None where that cannot be asked for as long as it is certain that nobody else has."""
        asked_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout((self._sure_until_ms - asked_ms) / 1000):
                holder = await self._find_holder()
        except (BrokerError, TimeoutError):
            return None
        if holder is _Holder.ELSEWHERE:
            self._sure_until_ms = asked_ms
        elif holder is not _Holder.NOBODY:
            self._sure_until_ms = asked_ms + _SURE_MS
        return holder

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_INTERVAL_MS / 1000):
                await self._ending.wait()

    async def _find_holder(self) -> _Holder:
        """Raises BrokerError."""
        group = group_of(self._pipeline.name)
        async with open_cluster(self._cluster) as cluster:
            described = (await Admin(cluster).describe_groups([group]))[group]
        holders = [member.client_id for member in described.members if PRIZE in member.assignment]
        if not holders:
            return _Holder.NOBODY if described.state in _SETTLED else _Holder.UNDECIDED
        return _Holder.BESIDE if holders == [client_id(self._daemon_id)] else _Holder.ELSEWHERE

    # ---- as a member

    async def _take_part(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            sharing = tasks.create_task(self._share.run(), name="share")
            while self._is_waiting() and self._is_sure():
                await self._rest()
                if self.settled.is_set():
                    await self._ask()
            if self._share.is_held:
                self.settled.set()
            elif not self._ending.is_set():
                trouble, reason = self._share.trouble, self._share.reason
                self.is_in_trouble = trouble is not None
                told = _LOST if reason == UNKNOWN_YET else f"{reason}: it is to be run there"
                self._lose(trouble or told)
            await self._ending.wait()
            self._share.close()
            await asyncio.wait([sharing], timeout=LEAVE_SECONDS)
            sharing.cancel()

    def _is_waiting(self) -> bool:
        """Whether the group has yet to say who has the pipeline."""
        return not self._share.is_held and self._share.reason == UNKNOWN_YET

    def look_again(self) -> None:
        """See `Attendant`: it is held now, or is not any more."""

    def extend(self, until_ms: float | None) -> None:
        """See `Attendant`: `drop` says when it is not certain any more."""

    async def drop(self, *, gently: bool) -> None:
        """See `Attendant`."""
        if not self._ending.is_set():
            self._lose(self._share.reason or "another daemon or command is to run it")

    def _lose(self, reason: str) -> None:
        """It is not held; whoever waits for it is refused."""
        if self.settled.is_set():
            self._on_lost(reason)
        else:
            self.refusal = reason
            self.settled.set()
