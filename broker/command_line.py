"""What the commands that talk to a cluster have in common: options, the connection, the answer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from broker.client.cluster import Cluster
from broker.client.connection import ConnectionSettings
from broker.command_settings import read_command_settings
from broker.errors import ProtocolError
from broker.option_types import addresses

Command: TypeAlias = Callable[[argparse.Namespace], Coroutine[Any, Any, None]]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CONNECT_TIMEOUT_MS = 5_000
"""How long an address may take to answer; a person waits for it."""


def client_command(actions: Any, name: str, command: Command, description: str) -> argparse.ArgumentParser:
    """Add a command that talks to a cluster, with the options that all of those have."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=description, description=description)
    parser.add_argument(
        "--bootstrap-server",
        type=addresses,
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,HOST:PORT]",
        help=f"any nodes of the cluster (default: {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="security.protocol, ssl.* and sasl.* as Kafka's clients have them, in .properties or .yaml",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=lambda options: asyncio.run(_interruptible(command(options))))
    return parser


async def _interruptible(command: Coroutine[Any, Any, None]) -> None:
    """Run the command; SIGINT and SIGTERM end it, and what it has open is closed in order.

    Raises SystemExit with 128 and the signal's number when it had not done what it was to do.
    """
    task = asyncio.current_task()
    assert task is not None, "called as a task"
    signalled: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        signalled.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        await command
    except asyncio.CancelledError:
        raise SystemExit(128 + signalled[0]) from None


def connection_settings(options: argparse.Namespace) -> ConnectionSettings:
    """How the options say that connections are made. Raises ConfigurationError."""
    settings = ConnectionSettings(client_id="broker-cli", connect_timeout_ms=CONNECT_TIMEOUT_MS)
    if options.command_config is not None:
        settings = read_command_settings(options.command_config, settings)
    return settings


@contextlib.asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[Cluster]:
    """The cluster that the options name.

    Raises ConnectionFailedError when nobody answers there, AuthenticationError, ConfigurationError.
    """
    cluster = Cluster(options.bootstrap_server, settings=connection_settings(options))
    try:
        await cluster.start(timeout_ms=CONNECT_TIMEOUT_MS)
        yield cluster
    finally:
        await cluster.close()


def print_answer(options: argparse.Namespace, document: Any, lines: Iterable[str]) -> None:
    """The document as JSON, or the lines, as the options ask."""
    if options.output == "json":
        lines = [json.dumps(document)]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def raise_first(results: Mapping[str, ProtocolError | None]) -> None:
    """Raise the first error that there is."""
    for error in results.values():
        if error is not None:
            raise error
