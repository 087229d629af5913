"""One of our nodes beside one of Apache Kafka 3.9.1, with the same clients.

    python -m ops.bench.kafka_comparison [--quick] [--seconds S] [--only WORD] [--directory DIR]

Each server runs alone, with default settings (Kafka's heap and collector as its scripts set them), on a
processor core of its own; the client is a child process on another. Both use one idle ZooKeeper. Both are
warmed up before anything counts, Kafka's compiler above all. Each case makes a topic, produces for S seconds
until the log holds every record, and fetches all of it.

Clients: librdkafka (confluent-kafka), and requests that were encoded before. MB/s count the bytes of record
values; CPU is the server process's user and system time. Where the server used little of its core, the
client or the disk set the pace, and only the processor time compares the servers. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from broker.embedded import EmbeddedZooKeeper
from broker.records.batch import Codec
from ops.bench.comparison.cases import (
    Case,
    Client,
    all_cases,
    few_cases,
)
from ops.bench.comparison.command import comparison_parser, run_comparison
from ops.bench.comparison.report import NodeResults, lines
from ops.bench.comparison.run import Run
from ops.bench.comparison.servers import (
    CLIENT_CORE,
    Server,
    apache_kafka,
    fetch_kafka,
    our_nodes,
)

LATENCY_SECONDS = 5.0
WARM_UP_SECONDS = 6.0
WARM_UP = (
    Case(record_size=100),
    Case(record_size=1_000, codec=Codec.ZSTD, partitions=10),
    Case(client=Client.PREBUILT, record_size=1_000, batch_size=16_000),
)


def measure(server: Server, name: str, cases: Sequence[Case], options: argparse.Namespace) -> NodeResults:
    """Warm the server up, then everything that is measured on it."""
    results = NodeResults(start_seconds=server.start_seconds, resident_started_mb=server.resident_mb())
    run = Run([server], name, client_core=CLIENT_CORE)
    for case in WARM_UP:
        run.outcome(case, options.warm_up_seconds / len(WARM_UP))
    for case in cases:
        outcome = run.outcome(case, options.seconds)
        if outcome is None:
            results.failed.append(case)
        else:
            results.outcomes[case] = outcome
    results.latency = run.latency(Case(record_size=1_000), options.latency_seconds)
    results.resident_loaded_mb = server.resident_mb()
    results.others_share = run.others_share()
    return results


def compare(directory: Path, options: argparse.Namespace) -> None:
    """Measure one server after the other and print the report."""
    cases = few_cases() if options.quick else all_cases()
    cases = [case for case in cases if all(word in f"{case.client} {case.title}" for word in options.only)]
    classpath = fetch_kafka(directory / "jars")
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
        with our_nodes(directory / "ours", zookeeper) as (server,):
            ours = measure(server, "our node", cases, options)
        with apache_kafka(directory / "kafka", zookeeper, classpath) as (server,):
            kafka = measure(server, "Apache Kafka", cases, options)
    for line in lines(ours, kafka):
        print(line)


def main() -> None:
    parser = comparison_parser(__doc__, seconds=1.5)
    parser.add_argument("--quick", action="store_true", help="a few short cases, to see that all works")
    options = parser.parse_args()
    options.warm_up_seconds, options.latency_seconds = WARM_UP_SECONDS, LATENCY_SECONDS
    if options.quick:
        options.seconds = min(options.seconds, 0.3)
        options.warm_up_seconds, options.latency_seconds = 0.3, 1.0
    run_comparison("kafka-comparison", options, compare)


if __name__ == "__main__":
    main()
