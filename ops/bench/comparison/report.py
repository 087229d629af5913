"""The comparison as text: one line a case, our node's figures beside Apache Kafka's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ops.bench.comparison.cases import Case, Client, Figure, Latency, Outcome

RESIDENT_SHARE_GOAL = 1 / 4
START_SHARE_GOAL = 1 / 3
HEADINGS = {
    Client.LIBRDKAFKA: "librdkafka as client",
    Client.PREBUILT: "requests encoded before, several connections",
}


@dataclass(slots=True, kw_only=True)
class Results:
    """What is measured on every server or cluster; filled in as the run goes on."""

    others_share: float = 0.0
    """Of all cores, used by processes that have no part in this: a large one spoils the figures."""
    latency: Latency | None = None
    failed: list[Case] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class NodeResults(Results):
    """What was measured on one server."""

    start_seconds: float
    resident_started_mb: float = 0.0
    resident_loaded_mb: float = 0.0
    outcomes: dict[Case, Outcome] = field(default_factory=dict)


def framed(ours: Results, kafka: Results, tables: Iterable[str], *, name: str) -> Iterator[str]:
    """What every report begins and ends with; `name` is ours."""
    yield (
        f"used by other processes meanwhile: {ours.others_share:.0%} of all cores beside {name}, "
        f"{kafka.others_share:.0%} beside Apache Kafka"
    )
    yield from tables
    for server, results in ((name, ours), ("Apache Kafka", kafka)):
        for case in results.failed:
            yield f"failed on {server}: {case.client} {case.title}"
    if ours.latency is not None and kafka.latency is not None:
        yield ""
        yield from _latency_lines(ours.latency, kafka.latency, name)


def lines(ours: NodeResults, kafka: NodeResults) -> Iterator[str]:
    """The whole report on one node beside another."""
    yield from framed(ours, kafka, _tables(ours, kafka), name="our node")
    yield _shares("start", "s", ours.start_seconds, kafka.start_seconds, START_SHARE_GOAL)
    for moment, mine, theirs in (
        ("started", ours.resident_started_mb, kafka.resident_started_mb),
        ("loaded", ours.resident_loaded_mb, kafka.resident_loaded_mb),
    ):
        yield _shares(f"resident, {moment}", "MB", mine, theirs, RESIDENT_SHARE_GOAL)


def _tables(ours: NodeResults, kafka: NodeResults) -> Iterator[str]:
    for client, heading in HEADINGS.items():
        cases = [case for case in ours.outcomes if case.client is client and case in kafka.outcomes]
        if cases:
            yield ""
            yield f"{heading}: MB/s of record values; CPU s of the server per GB; share of its core it used"
            yield from _table(cases, ours.outcomes, kafka.outcomes)


def _table(cases: list[Case], ours: Mapping[Case, Outcome], kafka: Mapping[Case, Outcome]) -> Iterator[str]:
    yield (
        f"{'':36}{'MB/s':>8}{'Kafka':>8}{'ratio':>7}{'goal':>13}"
        f"{'CPU s/GB':>10}{'Kafka':>8}{'ratio':>7}{'core':>7}{'Kafka':>7}"
    )
    for case in cases:
        yield _line(f"produce {case.title}", ours[case].produce, kafka[case].produce, case.goal)
    for case in cases:
        if case.acks and not case.flush:
            yield _line(f"fetch   {case.title}", ours[case].fetch, kafka[case].fetch, case.goal)


def _line(title: str, ours: Figure, kafka: Figure, goal: float) -> str:
    ratio = ours.megabytes_per_second / kafka.megabytes_per_second
    cpu_ratio = ours.cpu_per_gigabyte / kafka.cpu_per_gigabyte
    verdict = "met" if ratio >= goal else "missed"
    return (
        f"{title:36}{ours.megabytes_per_second:8.0f}{kafka.megabytes_per_second:8.0f}{ratio:7.2f}"
        f"{goal:6.1f} {verdict:6}{ours.cpu_per_gigabyte:10.2f}{kafka.cpu_per_gigabyte:8.2f}{cpu_ratio:7.2f}"
        f"{ours.busy:7.0%}{kafka.busy:7.0%}"
    )


def _latency_lines(ours: Latency, kafka: Latency, name: str) -> Iterator[str]:
    verdict = "met" if ours.p99_ms <= kafka.p99_ms else "missed"
    for server, latency in ((name, ours), ("Apache Kafka", kafka)):
        yield (
            f"produce latency at {latency.rate:.0f} records/s of 1 KB, {server}: "
            f"median {latency.median_ms:.2f} ms, p99 {latency.p99_ms:.2f} ms, "
            f"core {latency.cpu_seconds / latency.seconds:.0%}"
        )
    yield f"{'':8}p99 ratio {ours.p99_ms / kafka.p99_ms:.2f} (goal: at most 1, {verdict})"


def _shares(what: str, unit: str, ours: float, kafka: float, goal: float) -> str:
    verdict = "met" if ours <= goal * kafka else "missed"
    return (
        f"{what}: {ours:.2f} {unit}, Kafka {kafka:.2f} {unit}, ratio {ours / kafka:.2f} "
        f"(goal: at most {goal:.2f}, {verdict})"
    )
