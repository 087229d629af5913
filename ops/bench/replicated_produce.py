"""Replicated produce on three of our nodes beside three of Apache Kafka 3.9.1, with the same clients.

    python -m ops.bench.replicated_produce [--seconds S] [--only WORD ...] [--directory DIR]

Three replicas of every partition, acks=all. Each cluster runs alone, with default settings (Kafka's heap and
collector as its scripts set them), on all cores, which its nodes share with the client; one ZooKeeper serves
both. Both are warmed up before anything counts, Kafka's compiler above all. Each case makes a topic and
produces for S seconds, until all replicas have all. MB/s count the bytes of record values; CPU is user
and system time: of the three nodes together, and where there is one partition of its leader and, on average,
of a follower. Latency is from handing a record to the client until its acknowledgement. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from broker.embedded import EmbeddedZooKeeper
from broker.records.batch import Codec
from ops.bench.comparison.cases import Case, Client, replicated_cases
from ops.bench.comparison.command import comparison_parser, run_comparison
from ops.bench.comparison.replicated_report import ReplicatedResults, lines
from ops.bench.comparison.run import Run
from ops.bench.comparison.servers import Server, apache_kafka, fetch_kafka, our_nodes

NODES = 3
LATENCY_CASE = Case(record_size=1_000, replicas=NODES, acks=-1)
LATENCY_RECORDS_PER_SECOND = 200
WARM_UP = (
    Case(record_size=100, replicas=NODES, acks=-1),
    Case(record_size=1_000, codec=Codec.LZ4, partitions=12, replicas=NODES, acks=-1),
    Case(client=Client.PREBUILT, record_size=1_000, batch_size=16_000, replicas=NODES, acks=-1),
)


def measure(
    servers: Sequence[Server], name: str, cases: Sequence[Case], options: argparse.Namespace
) -> ReplicatedResults:
    """Warm the cluster up, then everything that is measured on it."""
    results = ReplicatedResults()
    run = Run(servers, name)
    for case in WARM_UP:
        run.produce(case, options.warm_up_seconds / len(WARM_UP))
    for case in cases:
        figure = run.produce(case, options.seconds)
        if figure is None:
            results.failed.append(case)
        else:
            results.figures[case] = figure
    if options.latency_seconds:
        results.latency = run.latency(
            LATENCY_CASE, options.latency_seconds, records_per_second=LATENCY_RECORDS_PER_SECOND
        )
    results.others_share = run.others_share()
    return results


def compare(directory: Path, options: argparse.Namespace) -> None:
    """Measure one cluster after the other and print the report."""
    cases = [
        case
        for case in replicated_cases()
        if all(word in f"{case.client} {case.title}" for word in options.only)
    ]
    cores = sorted(os.sched_getaffinity(0))
    classpath = fetch_kafka(directory / "jars")
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
        with our_nodes(directory / "ours", zookeeper, count=NODES, cores=cores) as servers:
            ours = measure(servers, "our nodes", cases, options)
        shutil.rmtree(directory / "ours")
        with apache_kafka(directory / "kafka", zookeeper, classpath, count=NODES, cores=cores) as servers:
            kafka = measure(servers, "Apache Kafka", cases, options)
    for line in lines(ours, kafka):
        print(line)


def main() -> None:
    parser = comparison_parser(__doc__, seconds=2.0)
    parser.add_argument("--warm-up-seconds", type=float, default=9.0)
    parser.add_argument("--latency-seconds", type=float, default=8.0, help="0: do not measure it")
    run_comparison("replicated-produce", parser.parse_args(), compare)


if __name__ == "__main__":
    main()
