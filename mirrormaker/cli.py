"""The command line: `mirrormaker VERB FILE`. Data on stdout, logs on stderr, exit 1 for an error."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.errors import BrokerError
from broker.telemetry import configure_logging
from mirrormaker.child_keeper import ChildKeeper
from mirrormaker.daemon import Daemon
from mirrormaker.embedded import EmbeddedTopology
from mirrormaker.memory import keep_freed_memory
from mirrormaker.report import render_json, render_text
from mirrormaker.status import read_status
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Topology

WATCH_INTERVAL_SECONDS = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = _parser().parse_args(arguments)
    configure_logging(options.log_level)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mirrormaker", description="Mirrors between clusters that speak the Kafka protocol."
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_verb(verbs, "validate", _validate, "check a topology file")
    _add_verb(verbs, "run", _run, "run the daemon: every route of the file, until SIGTERM")
    _add_verb(verbs, "up", _up, "run every cluster that says `embedded`, and the daemon")
    status = _add_verb(verbs, "status", _status, "show lag and state of every route")
    status.add_argument("--watch", action="store_true", help="show again every two seconds")
    status.add_argument("--output", choices=["text", "json"], default="text")
    demo = verbs.add_parser("demo", help="show the whole line on real data, from three airports to Spark")
    demo.add_argument("--keep", action="store_true", help="leave everything running until interrupted")
    demo.set_defaults(command=_demo)
    return parser


def _add_verb(
    verbs: Any, name: str, command: Callable[[argparse.Namespace], int], purpose: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=purpose, description=purpose)
    parser.add_argument("file", type=Path, metavar="FILE", help="the topology, in YAML")
    parser.set_defaults(command=command)
    return parser


def _validate(options: argparse.Namespace) -> int:
    topology = load_topology(options.file)
    print(f"{options.file}: {len(topology.clusters)} clusters, {len(topology.routes)} routes, no problems")
    return 0


def _run(options: argparse.Namespace) -> int:
    asyncio.run(_serve(load_topology(options.file)))
    return 0


def _up(options: argparse.Namespace) -> int:
    topology = load_topology(options.file)
    with EmbeddedTopology(topology) as embedded:
        for name, cluster in embedded.clusters.items():
            print(f"{name}\t{','.join(map(str, cluster.bootstrap))}")
        if embedded.zookeeper is not None:
            print(f"zookeeper\t{embedded.zookeeper.address}")
        print("ready", flush=True)
        asyncio.run(_serve(topology, ChildKeeper(embedded, SystemClock()).run))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from mirrormaker.demo import run_demo  # needs packages that mirrors do not

    return run_demo(keep=options.keep)


async def _serve(
    topology: Topology, companion: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> None:
    """Run the daemon until SIGTERM or SIGINT; `companion` runs beside it."""
    keep_freed_memory()
    daemon = Daemon(topology)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    async with asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(companion()) if companion is not None else None
        await daemon.run()
        if beside is not None:
            beside.cancel()


def _status(options: argparse.Namespace) -> int:
    topology = load_topology(options.file)
    while True:
        routes = asyncio.run(read_status(topology, SystemClock()))
        if options.output == "json":
            print(json.dumps(render_json(routes), indent=None if options.watch else 2), flush=True)
        else:
            if options.watch and sys.stdout.isatty():
                print(CLEAR_SCREEN, end="")
            render_text(routes, sys.stdout)
        if not options.watch:
            return 1 if any(route.lag is None for route in routes) else 0
        time.sleep(WATCH_INTERVAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
