"""`broker start`, `broker nameserver` and `broker zookeeper`: processes that serve until they are stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.config_loading import load_config
from broker.coordination.zookeeper import ZooKeeper
from broker.descriptor_limit import claim_descriptors
from broker.option_types import LOG_LEVELS, address, positive
from broker.storage.disk import SystemDisk
from broker.zookeeper_server import exec_zookeeper

NAMESERVER_ADDRESS = "127.0.0.1:9092"


def add_commands(commands: Any) -> None:
    """Add the commands that serve to the command line."""
    start = commands.add_parser("start", help="run one node in the foreground; SIGTERM stops it cleanly")
    start.add_argument("config", type=Path, metavar="CONFIG", help="settings, as .yaml or .properties")
    start.add_argument(
        "-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    start.add_argument(
        "--http",
        type=address,
        metavar="HOST:PORT",
        help="serve /metrics and /health there",
    )
    start.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    start.set_defaults(run=_start)
    nameserver = commands.add_parser(
        "nameserver",
        help="tell clients where brokers and leaders are, out of ZooKeeper; SIGTERM stops it cleanly",
        description="Answers ApiVersions, Metadata, DescribeCluster and FindCoordinator out of ZooKeeper. Any"
        " number may run side by side.",
    )
    nameserver.add_argument(
        "--zookeeper", required=True, metavar="HOST:PORT[,HOST:PORT][/CHROOT]", help="as the brokers have it"
    )
    nameserver.add_argument(
        "--listen",
        type=address,
        default=NAMESERVER_ADDRESS,
        metavar="HOST:PORT",
        help=f"default: {NAMESERVER_ADDRESS}",
    )
    nameserver.add_argument(
        "--listener-name",
        default="PLAINTEXT",
        metavar="NAME",
        help="clients are told the brokers' addresses on their listener of this name (default: PLAINTEXT)",
    )
    nameserver.add_argument(
        "--session-timeout-ms", type=positive, default=18_000, metavar="MS", help="default: 18000"
    )
    nameserver.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    nameserver.set_defaults(run=_nameserver)
    zookeeper = commands.add_parser("zookeeper", help="become a ZooKeeper server on 127.0.0.1 (needs Java)")
    zookeeper.add_argument("--port", type=int, required=True)
    zookeeper.add_argument("--data", type=Path, required=True, metavar="DIR", help="where it keeps its data")
    zookeeper.set_defaults(run=_zookeeper)


def _start(options: argparse.Namespace) -> None:
    from broker.http_endpoint import http_endpoint
    from broker.node import Node  # only here: the other two start faster without a node's modules

    loaded = load_config(options.config, options.overrides)
    claim_descriptors()

    async def serve() -> None:
        _cancel_when_signalled()
        coordination = ZooKeeper(
            loaded.node.zookeeper_connect, session_timeout_ms=loaded.node.zookeeper_session_timeout_ms
        )
        node = Node(
            loaded, coordination=coordination, disk=SystemDisk(), clock=SystemClock(), rng=random.Random()
        )
        await _run_until_cancelled(running(node))

    @contextlib.asynccontextmanager
    async def running(node: Node) -> AsyncIterator[None]:
        gc.disable()  # a start makes what stays, and looking through it again and again takes a fifth of it
        async with node.running(), contextlib.AsyncExitStack() as stack:
            if options.http is not None:  # it closes first: a node that stops is not told to be healthy
                stack.enter_context(http_endpoint(options.http, node.metrics))
            gc.enable()
            gc.freeze()  # what a started node consists of need not be looked at by every collection
            yield

    asyncio.run(serve())


def _nameserver(options: argparse.Namespace) -> None:
    from broker.nameserver import serving_names
    from broker.server.security import Listener, SecurityProtocol

    listener = Listener(
        name=options.listener_name, protocol=SecurityProtocol.PLAINTEXT, address=options.listen
    )
    coordination = ZooKeeper(options.zookeeper, session_timeout_ms=options.session_timeout_ms)

    async def serve() -> None:
        _cancel_when_signalled()
        serving = serving_names(
            coordination,
            listener,
            SystemClock(),
            timeout_ms=options.session_timeout_ms,
            rng=random.Random(),
        )
        await _run_until_cancelled(serving)

    asyncio.run(serve())


async def _run_until_cancelled(serving: contextlib.AbstractAsyncContextManager[object]) -> None:
    """Serve until the task is cancelled."""
    with contextlib.suppress(asyncio.CancelledError):
        async with serving:
            with contextlib.suppress(asyncio.CancelledError):  # so that it ends in order, as by itself
                await asyncio.Event().wait()


def _cancel_when_signalled() -> None:
    """Have SIGTERM and SIGINT cancel the running task, once."""
    task = asyncio.current_task()
    assert task is not None, "run as a task"
    signalled = _once(task.cancel)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signalled)


def _once(action: Callable[[], object]) -> Callable[[], None]:
    """`action` at the first call, nothing later: a second signal must not cut the clean stop short."""
    done = False

    def act() -> None:
        nonlocal done
        if not done:
            done = True
            action()

    return act


def _zookeeper(options: argparse.Namespace) -> None:
    exec_zookeeper(options.port, options.data)
