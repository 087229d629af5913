"""`status` for eyes and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from mirrormaker.flow.lag import Lag
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.flow.trouble import WHOLE_TOPIC
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.partition_status import UNASSIGNED, PartitionStatus
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.sizes import format_bytes
from mirrormaker.status import RouteStatus, Status, TopologyStatus
from mirrormaker.switch_report import switch_lines
from mirrormaker.timing_report import describe_latency, describe_time, timing_lines

QUIET_STATES = frozenset({"copying", UNASSIGNED})
WIDTH_WITHOUT_TERMINAL = 1_000
"""More than any table is wide: what reads them wants a row a line, and names whole."""


_LOST_WITH = {
    CONTROL_TOPIC: "pauses, halts and switches of before are gone",
    LEDGER_TOPIC: "audits take what was copied before for what came before the route's start",
    ORIGINS_TOPIC: "copies by producer ids of before count as born there, and may go in a circle",
    POSITIONS_TOPIC: "where nothing was committed since, the route goes on at the position of its group",
}
"""What went with the topics that the mirror keeps."""
LAG_FIGURES = ("LAG MESSAGES", "LAG BYTES", "LAG SECONDS")
ROUTE_FIGURES = ("PARTITIONS", *LAG_FIGURES, "P50 / P99 / P99.9", "COPIED BYTES", "DEEP BATCHES")
PARTITION_FIGURES = ("POSITION", "END", *LAG_FIGURES)


def render_text(status: Status, stream: TextIO, *, by_partition: bool = False) -> None:
    """One line a route, and with `by_partition` one for each of its partitions; then what needs attention."""
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, width=width, highlight=False, emoji=False)  # `:100:` is a line
    console.print(_table(("ROUTE", "STATE"), ROUTE_FIGURES, map(_row, status.routes)))
    if by_partition:
        partitions = [partition for route in status.routes for partition in route.partitions]
        console.print(
            _table(("PARTITION", "TO", "STATE"), PARTITION_FIGURES, map(_partition_row, partitions))
        )
    lines = (
        *([f"the daemon here: {status.daemon_problem}"] if status.daemon_problem is not None else []),
        *_worker_lines(status.workers),
        *_topology_lines(status.topology),
        *_cluster_lines(status.clusters),
        *_heartbeat_lines(status.heartbeats),
        *_pipeline_lines(status.pipelines),
        *switch_lines(status),
        *attention(status.routes),
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _table(words: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in words:
        table.add_column(title, overflow="fold")
    for title in figures:
        table.add_column(title, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _worker_lines(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_worker_line(worker) for worker in workers]


def _worker_line(worker: Mapping[str, Any]) -> str:
    line = f"worker {worker['number']}: {worker['state']}"
    if worker["resident_bytes"] is not None:
        share = sum(worker["partitions"].values())
        memory, cpu = format_bytes(worker["resident_bytes"]), worker["cpu_seconds"]
        line += f", pid {worker['pid']}, {share} partitions, {memory}, {cpu:.1f} CPU seconds"
    if worker["restarts"]:
        line += f", replaced {worker['restarts']} times"
    return line if worker["problem"] is None else f"{line}: {worker['problem']}"


def _topology_lines(topology: TopologyStatus | None) -> list[str]:
    if topology is None or topology.problem is None:
        return []
    heading = f"the file is not in force: generation {topology.generation} ({topology.digest}) goes on"
    return [heading, *(f"  {problem}" for problem in topology.problem.splitlines())]


def _pipeline_lines(pipelines: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for name, told in pipelines.items():
        last = told["last"]
        did = f", last run {last['run']} {last['state']}: {last['rows_read']} rows" if "run" in last else ""
        owner = f" ({told['owner']})" if told["problem"] and told["owner"] else ""
        problem = f": {told['problem']}{owner}" if told["problem"] else ""
        if told.get("standing_by"):
            problem = f": {told['standing_by']}"
        lines.append(f"pipeline {name}: {told['state']}{did}{problem}")
    return lines


def _cluster_lines(clusters: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for name, told in clusters.items():
        lines += [f"{name}: its topics are not compared: {told['problem']}"] if told["problem"] else []
        lines += (f"{name}: differs: {one['line']}" for one in told["drift"])
    return lines


def _heartbeat_lines(clusters: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{name}: no heartbeats are written there: {told['problem']}"
        for name, told in clusters.items()
        if told["problem"]
    ]


def attention(routes: Sequence[RouteStatus]) -> list[str]:
    """A line for everything that does not go as it should, and whom to ask about it."""
    lines: list[str] = []
    for route in routes:
        told = _troubles(route)
        lines += told
        if told and route.owner:
            lines.append(f"{route.name}: ask {route.owner}")
    return lines


def _troubles(route: RouteStatus) -> list[str]:
    lines = [f"{route.name}: {route.problem}"] if route.problem else []
    lines += _lost_lines(route)
    if route.pause is not None:
        lines.append(f"{route.name}: paused {describe_pause(route.pause)}")
    lines += (
        f"{route.name}: {topic} is paused {describe_pause(pause)}"
        for topic, pause in route.paused_topics.items()
    )
    lines += (describe_halt(route.name, halt) for halt in route.halts)
    stand = {(halt["topic"], halt["partition"], halt["reason"]) for halt in route.halts}
    gone = {(halt["topic"], halt["problem"]) for halt in route.halts if halt["partition"] == WHOLE_TOPIC}
    lines += timing_lines(route.name, route.objective, route.partitions)
    lines += (
        f"{route.name}: {topic} is not copied: {why}"
        for topic, why in route.obstacles.items()
        if (topic, why) not in gone
    )
    lines += (f"{route.name}: differs: {one['line']}" for one in route.drift)
    if problem := route.ledger.get("problem"):
        lines.append(f"{route.name}: the ledger is not kept: {problem}")
    if problem := route.groups.get("problem"):
        lines.append(f"{route.name}: groups are not carried over: {problem}")
    lines += _audit_lines(route)
    lines += (
        f"{route.name}: {partition.source} is {partition.state}"
        + (f" ({partition.reason})" if partition.reason else "")
        + (f": {partition.problem}" if partition.problem else "")
        for partition in route.partitions
        if (partition.problem or partition.state not in QUIET_STATES)
        and (*partition.source, partition.reason) not in stand
        and (partition.source.topic, partition.problem) not in route.obstacles.items()
    )
    if route.link.get("limit") == 0:
        lines.append(f"{route.name}: nothing may pass now: its limit, or its link's, is 0 at this time")
    return lines


def _lost_lines(route: RouteStatus) -> list[str]:
    return [
        f"{route.name}: {topic} at {told['cluster']!r} was deleted, and began anew "
        f"{describe_time(told['at_ms'])}: {_LOST_WITH[topic]}"
        for topic, told in route.begun_anew.items()
    ]


def _audit_lines(route: RouteStatus) -> list[str]:
    differences = {kind: count for kind, count in route.audit.get("differences", {}).items() if count}
    if not differences:
        return []
    told = ", ".join(f"{count:,} {kind}" for kind, count in differences.items())
    file = "mirrormaker audit FILE --route"
    return [f"{route.name}: differs from its source: {told}; where: {file} {route.name} --deep"]


def describe_halt(route: str, halt: Mapping[str, Any]) -> str:
    """What stands, since when and why, and what helps."""
    since = describe_time(halt["at_ms"])
    where = halt["topic"] if halt["partition"] < 0 else f"{halt['topic']}-{halt['partition']}"
    if halt["released"] is not None:
        outlook = f"released by {halt['released']['by']}"
    else:
        chosen = "" if halt["partition"] < 0 else f" --partition {halt['partition']}"
        outlook = f"to go on: mirrormaker resume FILE {route} --topic {halt['topic']}{chosen}"
    what = "stops the route" if halt["stops_route"] else "stands"
    return f"{route}: {where} {what} since {since}: {halt['reason']}: {halt['problem']}; {outlook}"


def describe_pause(pause: Mapping[str, Any]) -> str:
    """By whom, since when, and why."""
    since = describe_time(pause["at_ms"])
    reason = f": {pause['reason']}" if pause.get("reason") else ""
    return f"by {pause['by']} since {since}{reason}"


def render_json(status: Status) -> dict[str, Any]:
    """Plain data; lag that is not known is null, and so is the topology while no daemon runs here."""
    return {
        "topology": None if status.topology is None else asdict(status.topology),
        "daemon_problem": status.daemon_problem,
        "workers": [dict(worker) for worker in status.workers],
        "clusters": {name: dict(told) for name, told in status.clusters.items()},
        "heartbeats": {name: dict(told) for name, told in status.heartbeats.items()},
        "failover_groups": {name: dict(told) for name, told in status.failover_groups.items()},
        "routes": [_route_json(route) for route in status.routes],
        "pipelines": {name: dict(told) for name, told in status.pipelines.items()},
    }


def _row(route: RouteStatus) -> tuple[str, ...]:
    counts = route.counts
    return (
        route.name,
        route.state,
        str(len(route.partitions)),
        *_lag_cells(route.lag),
        describe_latency(route.latency),
        format_bytes(counts.get("bytes", 0)) if counts else "-",
        f"{sum(counts.get('deep_batches', {}).values()):,}" if counts else "-",
    )


def _partition_row(partition: PartitionStatus) -> tuple[str, ...]:
    known = [str(offset) if offset >= 0 else "?" for offset in (partition.committed, partition.end)]
    reason = f" ({partition.reason})" if partition.reason else ""
    return (
        str(partition.source),
        str(partition.destination),
        f"{partition.state}{reason}",
        *known,
        *_lag_cells(partition.lag),
    )


def _lag_cells(lag: Lag | None) -> tuple[str, str, str]:
    return (
        "?" if lag is None else f"{lag.messages:,}",
        "?" if lag is None or lag.bytes is None else format_bytes(lag.bytes),
        "?" if lag is None or lag.seconds is None else f"{lag.seconds:.1f}",
    )


def _route_json(route: RouteStatus) -> dict[str, Any]:
    return {
        "name": route.name,
        "from": route.source,
        "to": route.destination,
        "from_datacenter": route.datacenters[0],
        "to_datacenter": route.datacenters[1],
        "owner": route.owner,
        "state": route.state,
        "problem": route.problem,
        "pause": route.pause,
        "paused_topics": dict(route.paused_topics),
        "halts": [dict(halt) for halt in route.halts],
        "switch": None if route.switch is None else dict(route.switch),
        "lag": _lag_json(route.lag),
        "objective": None if route.objective is None else dict(route.objective),
        "latency": None if route.latency is None else dict(route.latency),
        "heartbeats": {cluster: dict(heard) for cluster, heard in route.heartbeats.items()},
        "partitions": [_partition_json(partition) for partition in route.partitions],
        "obstacles": dict(route.obstacles),
        "drift": [dict(one) for one in route.drift],
        "counts": dict(route.counts),
        "ledger": dict(route.ledger),
        "groups": dict(route.groups),
        "audit": dict(route.audit),
        "link": dict(route.link),
        "events": [dict(event) for event in route.events],
        "begun_anew": {topic: dict(told) for topic, told in route.begun_anew.items()},
    }


def _partition_json(partition: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": partition.source.topic,
        "partition": partition.source.partition,
        "destination_topic": partition.destination.topic,
        "state": partition.state,
        "reason": partition.reason,
        "problem": partition.problem,
        "committed": partition.committed,
        "end": partition.end,
        "lag": _lag_json(partition.lag),
        "retention": None if partition.retention is None else dict(partition.retention),
    }


def _lag_json(lag: Lag | None) -> dict[str, Any] | None:
    return None if lag is None else {"messages": lag.messages, "bytes": lag.bytes, "seconds": lag.seconds}
