"""The command line: `mirrormaker VERB FILE`. Data on stdout, logs on stderr, exit 1 for an error."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from broker.client.group_offset_admin import Destination
from broker.client.security.disclosure import disclose
from broker.client.security.text_source import Place, TextSource
from broker.clock import SystemClock
from broker.errors import BrokerError, ConfigurationError
from broker.output_end import end_without_output, prepare_streams
from broker.program_options import ProgramParser, TellVersion
from broker.telemetry import configure_logging
from broker.types import HostPort
from mirrormaker.audit_commands import add_audit_verb
from mirrormaker.child_keeper import ChildKeeper
from mirrormaker.control_access import pause, resume
from mirrormaker.daemon import Daemon
from mirrormaker.doubts import doubts
from mirrormaker.embedded import EmbeddedTopology
from mirrormaker.end_by_signal import end_by_signal
from mirrormaker.failover.commands import add_failover_verbs
from mirrormaker.import_commands import add_import_verb
from mirrormaker.memory import settle_memory
from mirrormaker.perf_commands import add_perf_verb
from mirrormaker.pipelines.command_lines import add_pipeline_verbs
from mirrormaker.plan_commands import add_plan_verbs
from mirrormaker.reconcile.pauses import find_route
from mirrormaker.report import render_json, render_text
from mirrormaker.route_runner import describe_error
from mirrormaker.seeking import parse_destination, seek
from mirrormaker.status import Status, load_for_status, read_status
from mirrormaker.topology.document import read_text
from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.model import LOOPBACK, Topology
from mirrormaker.translate_commands import add_translate_verb

WATCH_INTERVAL_SECONDS = 2.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    prepare_streams()
    try:
        options = _parser().parse_args(arguments)
        options.log_level = options.log_level or options.usual_log_level
        configure_logging(options.log_level)
        command: Callable[[argparse.Namespace], int] = options.command
        code = command(options)
        sys.stdout.flush()
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:  # of what ran side by side
        if group.split(BrokerError)[1] is not None:
            raise
        print(describe_error(group), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return end_without_output("mirrormaker", error)
    return code


class _Parser(ProgramParser):
    """What is asked for wrongly is an error like others: 2 means that `plan` or `audit` found something."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mirrormaker", description="Mirrors between clusters that speak the Kafka protocol."
    )
    parser.add_argument("--version", action=TellVersion)
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="of what is logged to stderr: by default info of a daemon, warning of commands",
    )
    parser.set_defaults(usual_log_level="warning")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_verb(verbs, "validate", _validate, "check a topology file")
    for name, command, purpose in (
        ("run", _run, "run the daemon: every route of the file, until SIGTERM"),
        ("up", _up, "run every cluster that says `embedded`, and the daemon"),
    ):
        daemon = _add_verb(verbs, name, command, purpose)
        daemon.set_defaults(usual_log_level="info")
        _add_http(daemon)
    add_plan_verbs(partial(_add_verb, verbs))
    add_translate_verb(partial(_add_verb, verbs))
    add_audit_verb(partial(_add_verb, verbs))
    add_perf_verb(partial(_add_verb, verbs))
    add_import_verb(verbs)
    add_pipeline_verbs(verbs, _add_verb)
    add_failover_verbs(partial(_add_verb, verbs))
    status = _add_verb(verbs, "status", _status, "show lag and state of routes")
    status.add_argument(
        "route", type=_text, nargs="?", metavar="ROUTE", help="this one alone, partition by partition"
    )
    _add_topics(status)
    status.add_argument("--watch", action="store_true", help="show again every two seconds")
    status.add_argument("--output", choices=["text", "json"], default="text")
    _add_wishes(verbs)
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


def _add_wishes(verbs: Any) -> None:
    pause = _add_verb(verbs, "pause", _pause, "have a route, or topics of it, pause wherever it runs")
    resume = _add_verb(verbs, "resume", _resume, "have a route, or topics of it, go on")
    seek = _add_verb(verbs, "seek", _seek, "have a paused route go on somewhere else in its source")
    for parser in (pause, resume, seek):
        parser.add_argument("route", type=_text, metavar="ROUTE", help="a route's name")
        _add_topics(parser)
    pause.add_argument("--reason", type=_text, metavar="TEXT", help="for whoever wonders")
    seek.add_argument(
        "--to",
        type=_destination,
        required=True,
        metavar="earliest|latest|TIME|OFFSET",
        help="a time is one such as 2026-01-31T12:00:00Z",
    )
    for parser in (resume, seek):
        parser.add_argument("--partition", type=int, metavar="N", help="of each topic; all if left out")


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        type=_text,
        action="append",
        default=[],
        dest="topics",
        metavar="T",
        help="of the source; all if left out",
    )


def _text(text: str) -> str:
    """What can be written down: not every byte of a command line is text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not text in UTF-8") from None
    return text


def _destination(text: str) -> Destination:
    try:
        return parse_destination(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        type=_http_address,
        metavar="HOST:PORT",
        help=f"serve state, metrics and changes there; a port alone means {LOOPBACK}",
    )
    parser.add_argument(
        "--http-token",
        type=_http_token,
        metavar="file:PATH|env:NAME",
        help="where the token stands that changes over HTTP need; without one only this machine may make any",
    )


def _http_address(text: str) -> HostPort:
    try:
        return HostPort.parse(text if ":" in text else f"{LOOPBACK}:{text}")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _http_token(text: str) -> TextSource:
    source = TextSource.parse("--http-token", text)
    if source.place is Place.INLINE:
        raise argparse.ArgumentTypeError("takes file:PATH or env:NAME, so that nobody sees the token itself")
    return source


def _validate(options: argparse.Namespace) -> int:
    text = read_text(options.file)
    topology = parse_topology(text, options.file)
    found = doubts(topology, text, options.file)
    for doubt in found:
        print(f"warning: {doubt.render(str(options.file))}", file=sys.stderr)
    print(
        f"{options.file}: {len(topology.clusters)} clusters, {len(topology.routes)} routes, "
        f"{len(topology.pipelines)} pipelines, {len(found) or 'no'} {'warnings' if found else 'problems'}"
    )
    return 0


def _check_http(options: argparse.Namespace) -> None:
    if options.http_token is not None and options.http is None:
        raise ConfigurationError(["--http-token needs --http: nothing is served without"])


def _run(options: argparse.Namespace) -> int:
    _check_http(options)
    asyncio.run(_serve(Daemon(options.file, log_level=options.log_level), options))
    return 0


def _up(options: argparse.Namespace) -> int:
    _check_http(options)
    daemon = Daemon(options.file, keeps_clusters=True, log_level=options.log_level)
    with EmbeddedTopology(daemon.topology) as embedded:
        for name, cluster in embedded.clusters.items():
            print(f"{name}\t{','.join(map(str, cluster.bootstrap))}")
        if embedded.zookeeper is not None:
            print(f"zookeeper\t{embedded.zookeeper.address}")
        print("ready", flush=True)
        asyncio.run(_serve(daemon, options, ChildKeeper(embedded, SystemClock()).run))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from mirrormaker.demo import run_demo  # needs packages that mirrors do not

    return run_demo(keep=options.keep)


async def _serve(
    daemon: Daemon,
    options: argparse.Namespace,
    companion: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Run the daemon until SIGTERM or SIGINT, SIGHUP has it read its file; `companion` runs beside it."""
    settle_memory()
    end_by_signal(daemon.stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, daemon.request_reload)
    async with asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(companion()) if companion is not None else None
        async with _served(daemon, options):
            await daemon.run()
        if beside is not None:
            beside.cancel()


def _pause(options: argparse.Namespace) -> int:
    topology = load_for_status(options.file)
    asyncio.run(pause(topology, options.route, options.topics, options.reason, SystemClock()))
    return 0


def _resume(options: argparse.Namespace) -> int:
    topology = load_for_status(options.file)
    work = resume(topology, options.route, options.topics, SystemClock(), options.partition)
    resumed, pause = asyncio.run(work)
    for what in resumed:
        print(what)
    if pause is not None:
        print(f"held all the same: {pause}", file=sys.stderr)
    elif not resumed:
        print("nothing was noted as paused", file=sys.stderr)
    return 0


def _seek(options: argparse.Namespace) -> int:
    topology = load_for_status(options.file)
    moved = asyncio.run(seek(topology, options.route, options.topics, options.to, options.partition))
    for partition, offset in moved.items():
        print(f"{partition.topic}\t{partition.partition}\t{offset}")
    return 0


@asynccontextmanager
async def _served(daemon: Daemon, options: argparse.Namespace) -> AsyncIterator[None]:
    if options.http is None:
        yield
        return
    from mirrormaker.console.server import serving  # only here: a daemon without a port starts twice as fast

    token = _disclose_token(options.http_token) if options.http_token is not None else None
    async with serving(daemon, options.http, token) as address:
        print(f"http\t{address}", flush=True)
        yield


def _disclose_token(source: TextSource) -> str:
    """Raises ConfigurationError, also for one that is empty: whoever leaves it out would have it."""
    token = disclose(source).strip()
    if not token:
        raise ConfigurationError([f"{source.where}: there is no token in it"])
    return token


def _status(options: argparse.Namespace) -> int:
    if options.topics and options.route is None:
        raise ConfigurationError(["--topic needs a ROUTE"])
    while True:
        status = asyncio.run(_read_status(load_for_status(options.file), options))
        if options.output == "json":
            print(json.dumps(render_json(status), indent=None if options.watch else 2), flush=True)
        else:
            if options.watch and sys.stdout.isatty():
                print(CLEAR_SCREEN, end="")
            render_text(status, sys.stdout, by_partition=options.route is not None)
        if not options.watch:
            return 1 if any(route.lag is None for route in status.routes) else 0
        time.sleep(WATCH_INTERVAL_SECONDS)


async def _read_status(topology: Topology, options: argparse.Namespace) -> Status:
    routes = None
    if options.route is not None:
        routes = [find_route(topology, options.route, options.topics)]
    return await read_status(topology, SystemClock(), routes=routes, topics=options.topics)


if __name__ == "__main__":
    sys.exit(main())
