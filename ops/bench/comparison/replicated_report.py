"""Replicated produce as text: our cluster's figures beside Apache Kafka's. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ops.bench.comparison.cases import Case, Client, Figure
from ops.bench.comparison.report import HEADINGS, Results, framed


@dataclass(slots=True, kw_only=True)
class ReplicatedResults(Results):
    """What was measured on one cluster."""

    figures: dict[Case, Figure] = field(default_factory=dict)


def lines(ours: ReplicatedResults, kafka: ReplicatedResults) -> Iterator[str]:
    """The whole report."""
    return framed(ours, kafka, _tables(ours, kafka), name="our nodes")


def _tables(ours: ReplicatedResults, kafka: ReplicatedResults) -> Iterator[str]:
    for client in Client:
        cases = [case for case in ours.figures if case.client is client and case in kafka.figures]
        if cases:
            yield ""
            yield f"{HEADINGS[client]}: MB/s of record values; CPU s per GB: all, leader, a follower"
            yield (
                f"{'':28}{'MB/s':>7}{'Kafka':>7}{'ratio':>7}{'goal':>13}{'all':>8}{'Kafka':>8}{'ratio':>7}"
                f"{'leader':>8}{'Kafka':>8}{'follower':>10}{'Kafka':>8}{'ratio':>7}"
            )
            for case in cases:
                yield _line(case, ours.figures[case], kafka.figures[case])


def _line(case: Case, ours: Figure, kafka: Figure) -> str:
    ratio = ours.megabytes_per_second / kafka.megabytes_per_second
    verdict = "met" if ratio >= case.goal else "missed"
    line = (
        f"{case.title:28}{ours.megabytes_per_second:7.0f}{kafka.megabytes_per_second:7.0f}{ratio:7.2f}"
        f"{case.goal:6.1f} {verdict:6}{ours.cpu_per_gigabyte:8.2f}{kafka.cpu_per_gigabyte:8.2f}"
        f"{ours.cpu_per_gigabyte / kafka.cpu_per_gigabyte:7.2f}"
    )
    if case.partitions > 1:
        return line  # every node leads some and follows others
    follower, theirs = (each.follower_cpu_per_gigabyte(case.replicas - 1) for each in (ours, kafka))
    return (
        f"{line}{ours.leader_cpu_per_gigabyte:8.2f}{kafka.leader_cpu_per_gigabyte:8.2f}"
        f"{follower:10.2f}{theirs:8.2f}{follower / theirs:7.2f}"
    )
