"""Runs the demo: brings everything up, drives the stages, shows the figures, and says whether they agree."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from broker.child_process import ChildProcess
from broker.loopback import accepts, require_free_ports
from mirrormaker.demo.figures import Figures, RouteFigures, delay_table, rate_table, route_table
from mirrormaker.demo.flights import (
    Flight,
    expected_delays,
    flights_by_origin,
    read_rows,
    to_flights,
)
from mirrormaker.demo.stages import (
    TOPIC,
    Advance,
    TopicSize,
    compute,
    create_topic,
    lag,
    measure,
    produce,
    wait_until_mirrored,
)
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, Topology

TOPOLOGY_FILE = Path(__file__).parents[2] / "topologies" / "demo.yaml"
AGGREGATE = ClusterName("aggregate")
_START_TIMEOUT_MS = 60_000
_STOP_TIMEOUT_MS = 30_000
_STAGE_TIMEOUT_S = 120.0
_WIDTH = 100
"""Columns of the tables where there is no terminal."""


def run_demo(*, keep: bool, output: Console | None = None) -> int:
    """Run the whole line once; returns 0 when every record arrived exactly once and figures agree, else 1.

    With `keep`, everything stays up after that, with its addresses printed, until interrupted.
    """
    console = output or Console(width=None if sys.stdout.isatty() else _WIDTH)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _work_folder() as folder:
        topology = load_topology(Path(shutil.copy(TOPOLOGY_FILE, folder)))
        rows = read_rows()
        console.print(f"Starting {len(topology.clusters)} clusters and {len(topology.routes)} mirrors ...")
        with _everything_up(topology, folder):
            figures = _run_stages(topology, rows, console, folder / "spark.log")
            problems = figures.problems()
            _show(console, figures, problems)
            if keep:
                _stay(console, topology)
    return 1 if problems else 0


def _run_stages(topology: Topology, rows: list[dict[str, str]], console: Console, spark_log: Path) -> Figures:
    flights = list(to_flights(rows))
    counts = flights_by_origin(rows)
    topics = {_topic(route): counts[_origin(route)] for route in topology.routes}
    with _progress(console) as progress:
        produced = progress.add_task("produced", total=len(flights))
        mirrored = progress.add_task("mirrored", total=len(flights))
        crossing = asyncio.run(
            _cross(
                topology,
                flights,
                topics,
                lambda count: progress.update(produced, completed=count),
                lambda count: progress.update(mirrored, completed=count),
            )
        )
        computed = progress.add_task("computed by Spark", total=None)
        started = time.monotonic()
        with _standard_error_in(spark_log):
            arrivals, delays = compute(topology.clusters[AGGREGATE].bootstrap, list(topics))
        spark_seconds = time.monotonic() - started
        progress.update(computed, total=len(flights), completed=sum(a.records for a in arrivals.values()))
    return Figures(
        routes=tuple(_route_figures(route, counts, crossing) for route in topology.routes),
        arrivals=arrivals,
        delays=delays,
        expected_delays=expected_delays(rows),
        produce_seconds=crossing.produce_seconds,
        mirror_seconds=crossing.mirror_seconds,
        spark_seconds=spark_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What was seen of the way from the airports to the aggregate; keyed by origin, topic and route name."""

    uncompressed_bytes: Mapping[str, int]
    stored: Mapping[str, TopicSize]
    lag_records: Mapping[RouteName, int]
    produce_seconds: float
    mirror_seconds: float


async def _cross(
    topology: Topology,
    flights: Sequence[Flight],
    topics: Mapping[str, int],
    show_produced: Advance,
    show_mirrored: Advance,
) -> Crossing:
    """Produce at the airports while the mirrors carry; both ends are watched at once."""
    airports = {_origin(route): topology.clusters[route.source].bootstrap for route in topology.routes}
    aggregate = topology.clusters[AGGREGATE].bootstrap
    for bootstrap in airports.values():
        await create_topic(bootstrap)
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        mirroring = tasks.create_task(
            wait_until_mirrored(aggregate, topics, show_mirrored, timeout_s=_STAGE_TIMEOUT_S)
        )
        uncompressed_bytes = await produce(airports, flights, show_produced)
        produce_seconds = time.monotonic() - started
        await mirroring
    mirror_seconds = time.monotonic() - started
    lag_records = {
        route.name: await lag(airports[_origin(route)], route, timeout_s=_STAGE_TIMEOUT_S)
        for route in topology.routes
    }
    return Crossing(
        uncompressed_bytes=uncompressed_bytes,
        stored=await measure(aggregate, list(topics)),
        lag_records=lag_records,
        produce_seconds=produce_seconds,
        mirror_seconds=mirror_seconds,
    )


def _route_figures(route: RouteSpec, counts: Mapping[str, int], crossing: Crossing) -> RouteFigures:
    origin, topic = _origin(route), _topic(route)
    return RouteFigures(
        route=route.name,
        topic=topic,
        records_in=counts[origin],
        records_mirrored=crossing.stored[topic].records,
        compressed_bytes=crossing.stored[topic].bytes,
        uncompressed_bytes=crossing.uncompressed_bytes[origin],
        lag_records=crossing.lag_records[route.name],
    )


def _origin(route: RouteSpec) -> str:
    """The airport whose flights a route carries: clusters are called after them."""
    return route.source.upper()


def _topic(route: RouteSpec) -> str:
    return route.topics.name.format(cluster=route.source, topic=TOPIC)


def _show(console: Console, figures: Figures, problems: Sequence[str]) -> None:
    for table in (delay_table(figures), rate_table(figures), route_table(figures)):
        console.print(table)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    if not problems:
        console.print("Every record arrived exactly once, and Spark's figures are those of the CSV.")


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:>18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def _work_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mirrormaker-demo-") as folder:
        yield Path(folder)


@contextmanager
def _everything_up(topology: Topology, folder: Path) -> Iterator[None]:
    """Run `mirrormaker up` until the block ends.

    Raises EmbeddedError with the end of its log, ConfigurationError when a port is taken: whoever listens
    there is not to be mistaken for what was started.
    """
    addresses = [address for cluster in topology.clusters.values() for address in cluster.bootstrap]
    require_free_ports(address.port for address in addresses)
    command = [sys.executable, "-m", "mirrormaker.cli", "up", str(folder / TOPOLOGY_FILE.name)]
    process = ChildProcess.start("mirrormaker up", command, folder / "up.log")
    try:
        process.wait_until(lambda: all(map(accepts, addresses)), timeout_ms=_START_TIMEOUT_MS)
        yield
    finally:
        process.stop(timeout_ms=_STOP_TIMEOUT_MS)


@contextmanager
def _standard_error_in(file: Path) -> Iterator[None]:
    """Keep what the block and its children say on standard error, in case it fails: Spark says a lot."""
    kept = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    except Exception:
        os.write(kept, file.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _stay(console: Console, topology: Topology) -> None:
    """Show where everything listens, and return when this process is interrupted or told to end."""
    for cluster in topology.clusters.values():
        console.print(f"{cluster.name:>12}  {','.join(map(str, cluster.bootstrap))}")
    console.print("Everything keeps running; stop it with Ctrl-C.")
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    signal.sigwait(ends)
