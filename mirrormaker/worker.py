"""A worker: a process that runs part of the daemon's routes, and lives as long as it.

`python -m mirrormaker.worker --daemon ID` is started by the daemon alone, which tells it which of its workers
it is, maybe much later, and what to run (`workers/orders`). It keeps nothing on disk; SIGTERM and the end of
its standard input let every route finish what is in flight, commit and give way. The composition root of the
process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import structlog

from broker.clock import Clock, SystemClock
from broker.errors import ConfigurationError
from broker.telemetry import configure_logging, logger
from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.daemon_identity import DaemonIdentity
from mirrormaker.flow.bandwidth.statements import encode_statement
from mirrormaker.memory import settle_memory
from mirrormaker.process_figures import cpu_seconds, resident_bytes
from mirrormaker.route_host import RouteHost
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import Topology
from mirrormaker.workers.orders import (
    LINE_BYTES_MAX,
    Be,
    GarbledLineError,
    Hear,
    Heed,
    Hold,
    Leave,
    Run,
    decode_order,
    encode_picture,
)
from mirrormaker.workers.placement import works_of_worker
from mirrormaker.workers.shared_claims import claim_lists, contested, decisions_of

PICTURE_INTERVAL_MS = 1_000
REFUSED_RETRY_MS = 3_000
"""A topology that was refused is looked at again after so long: what it names may be there again."""

_log = logger("worker")


class Worker:
    """See the module. `run` until `stop`, or until it is told to leave."""

    def __init__(self, daemon_id: str, number: int, clock: Clock) -> None:
        self._daemon_id = daemon_id
        self._number = number
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._generation = 0
        self._digest = ""
        self._problem: str | None = None
        """Why the topology that was told last is not in force."""
        self._topology: Topology | None = None
        self._claims: Mapping[str, Mapping[str, list[str]]] = {}
        """Who writes what, as it was told last."""
        self._cluster_ids = ClusterIds()
        self._host: RouteHost
        self._ordered: asyncio.Queue[Run] = asyncio.Queue()
        self._ending = asyncio.Event()
        self._leaves = False

    async def run(self, orders: asyncio.StreamReader, pictures: asyncio.WriteTransport) -> None:
        """Follow `orders`, and tell of the work by `pictures`."""
        async with asyncio.TaskGroup() as tasks:
            identity = DaemonIdentity(
                daemon_id=self._daemon_id,
                host=socket.gethostname(),
                generation=lambda: self._generation,
                topology=lambda: self._topology,
                worker=self._number,
                worker_since_ms=self._started_ms,
            )
            self._host = RouteHost(identity, self._cluster_ids, self._clock, tasks)
            helpers = [
                tasks.create_task(self._follow(orders), name="follow orders"),
                tasks.create_task(self._run_ordered(), name="run what is ordered"),
                tasks.create_task(self._tell(pictures), name="tell"),
            ]
            await self._ending.wait()
            await self._host.close(for_good=self._leaves)
            for helper in helpers:
                helper.cancel()

    def stop(self) -> None:
        """Ask `run` to end; may be called from a signal handler of the event loop."""
        self._ending.set()

    async def _follow(self, orders: asyncio.StreamReader) -> None:
        while line := await orders.readline():
            match decode_order(line):
                case Run() as order:
                    self._ordered.put_nowait(order)
                case Heed() as order:
                    self._claims = order.claims
                    self._decide()
                case Hear() as order:
                    self._host.hear_limits(order.statements)
                case Hold() as order:
                    self._host.heed_tails(order.tails)
                case Leave():
                    self._leaves = True
                    self.stop()
        self.stop()

    async def _run_ordered(self) -> None:
        """Have what was ordered last in force; what is refused is tried again, until something else is."""
        order = await self._ordered.get()
        while True:
            is_taken = await self._take(order)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if is_taken else REFUSED_RETRY_MS / 1000):
                    order = await self._ordered.get()

    async def _take(self, order: Run) -> bool:
        """Whether its topology is good, and in force."""
        try:
            topology = await asyncio.to_thread(order.source.parse_routes)
        except ConfigurationError as error:  # a path that the daemon could follow leads nowhere, for one
            if self._problem != str(error):
                self._problem = str(error)
                _log.warning("topology_refused", problems=error.problems)
            return False
        self._problem = None
        self._generation, self._digest = topology.generation, order.source.digest
        self._cluster_ids.keep_in(StateDirectory(topology.data_dir))
        self._topology = topology
        self._decide()
        self._host.desire(works_of_worker(topology, self._number), topology)
        return True

    def _decide(self) -> None:
        """Go by the claims that were told last."""
        if self._topology is not None:
            self._host.decide(decisions_of(self._topology, self._claims))

    def _describe_claims(self) -> dict[str, dict[str, list[str]]]:
        if self._topology is None:
            return {}
        return {name: claim_lists(self._host.claims[name]) for name in contested(self._topology)}

    async def _tell(self, pictures: asyncio.WriteTransport) -> None:
        while True:
            if not pictures.get_write_buffer_size():  # the daemon has read the last one
                limits = [encode_statement(one) for one in self._host.tell_limits()]
                pictures.write(encode_picture(self.describe() | {"limits": limits}))
            await asyncio.sleep(PICTURE_INTERVAL_MS / 1000)

    def describe(self) -> dict[str, Any]:
        """A picture of this process."""
        return {
            "at_ms": self._clock.now_ms(),
            "started_ms": self._started_ms,
            "digest": self._digest,
            "problem": self._problem,
            "resident_bytes": resident_bytes(),
            "cpu_seconds": round(cpu_seconds(), 3),
            "links": self._host.describe_links(),
            "claims": self._describe_claims(),
            "routes": self._host.describe(),
        }


async def serve(daemon_id: str, orders_from: BinaryIO, pictures_to: BinaryIO) -> None:
    """Be the worker that the orders say, until they end or SIGTERM. Raises GarbledLineError."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(orders)
    reading, _ = await loop.connect_read_pipe(lambda: protocol, orders_from)
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pictures_to)
    try:
        number = await _learn_number(orders)
        if number is None:
            return
        structlog.contextvars.bind_contextvars(worker=number)
        _log.info("worker_started", pid=os.getpid())
        worker = Worker(daemon_id, number, SystemClock())
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run(orders, writing)
        _log.info("worker_stopped")
    finally:
        if not writing.is_closing():  # as it is once the daemon was killed
            writing.abort()
        reading.close()


async def _learn_number(orders: asyncio.StreamReader) -> int | None:
    """None: the daemon has gone without a use for this process. Raises GarbledLineError."""
    line = await orders.readline()
    if not line:
        return None
    match decode_order(line):
        case Be(number=number):
            return number
    raise GarbledLineError(f"this process does not know who it is: {line[:100]!r}")


def main() -> int:
    """Be a worker of the daemon that the arguments say."""
    parser = argparse.ArgumentParser(prog="mirrormaker.worker", description="Started by the daemon.")
    parser.add_argument("--daemon", required=True, metavar="ID")
    parser.add_argument("--log-level", default="info")
    options = parser.parse_args()
    configure_logging(options.log_level)
    settle_memory()
    asyncio.run(serve(options.daemon, *_take_pipes()))
    return 0


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Those that orders come by and pictures go by, for this module alone: what a user's function prints goes
    to where the log goes, and what it reads is nothing.
    """
    orders, pictures = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return orders, pictures


if __name__ == "__main__":
    sys.exit(main())
