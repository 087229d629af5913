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
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import psutil

from broker.embedded import EmbeddedZooKeeper
from broker.records.batch import Codec
from ops.bench.comparison.cases import (
    Case,
    Client,
    Latency,
    Outcome,
    Plan,
    all_cases,
    few_cases,
)
from ops.bench.comparison.processor_time import cpu_seconds
from ops.bench.comparison.report import Results, lines
from ops.bench.comparison.servers import (
    CLIENT_CORE,
    Server,
    apache_kafka,
    fetch_kafka,
    missing_tool,
    our_node,
)

LATENCY_SECONDS = 5.0
WARM_UP_SECONDS = 6.0
CHILD_TIMEOUT_SECONDS = 180
WARM_UP = (
    Case(record_size=100),
    Case(record_size=1_000, codec=Codec.ZSTD, partitions=10),
    Case(client=Client.PREBUILT, record_size=1_000, batch_size=16_000),
)


class Run:
    """Loads one server with case after case."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self._numbers = count()

    def outcome(self, case: Case, seconds: float) -> Outcome | None:
        """What a case gave; None, with its reason on stderr, when it failed."""
        print(f"{self._name}: {case.client} {case.title}", file=sys.stderr, flush=True)
        try:
            return Outcome.from_json(self._child("throughput", case, seconds))
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{self._name}: {case.title} failed: {error}", file=sys.stderr, flush=True)
            return None

    def latency(self, seconds: float) -> Latency:
        print(f"{self._name}: latency", file=sys.stderr, flush=True)
        return Latency.from_json(self._child("latency", Case(record_size=1_000), seconds))

    def _child(self, kind: str, case: Case, seconds: float) -> str:
        plan = Plan(
            port=self._server.address.port,
            server_pid=self._server.pid,
            topic=f"bench-{next(self._numbers)}",
            seconds=seconds,
            case=case,
        )
        finished = subprocess.run(
            [sys.executable, "-m", "ops.bench.comparison.load", kind, plan.to_json()],
            stdout=subprocess.PIPE,
            text=True,
            timeout=CHILD_TIMEOUT_SECONDS,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {CLIENT_CORE}),
        )
        return finished.stdout


def measure(server: Server, name: str, cases: Sequence[Case], options: argparse.Namespace) -> Results:
    """Warm the server up, then everything that is measured on it."""
    results = Results(start_seconds=server.start_seconds, resident_started_mb=server.resident_mb())
    run = Run(server, name)
    everybody, measured, started = busy_seconds(), measured_seconds(server), time.monotonic()
    for case in WARM_UP:
        run.outcome(case, options.warm_up_seconds / len(WARM_UP))
    for case in cases:
        outcome = run.outcome(case, options.seconds)
        if outcome is None:
            results.failed.append(case)
        else:
            results.outcomes[case] = outcome
    results.latency = run.latency(options.latency_seconds)
    results.resident_loaded_mb = server.resident_mb()
    others = (busy_seconds() - everybody) - (measured_seconds(server) - measured)
    results.others_share = others / (time.monotonic() - started) / (os.cpu_count() or 1)
    return results


def busy_seconds() -> float:
    """Processor time that the whole machine has used."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait)


def measured_seconds(server: Server) -> float:
    """Processor time of the server and of the clients that have ended."""
    clients = resource.getrusage(resource.RUSAGE_CHILDREN)
    return cpu_seconds(server.pid) + clients.ru_utime + clients.ru_stime


def compare(directory: Path, options: argparse.Namespace) -> None:
    """Measure one server after the other and print the report."""
    cases = few_cases() if options.quick else all_cases()
    cases = [case for case in cases if all(word in f"{case.client} {case.title}" for word in options.only)]
    classpath = fetch_kafka(directory / "jars")
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
        with our_node(directory / "ours", zookeeper) as server:
            ours = measure(server, "our node", cases, options)
        with apache_kafka(directory / "kafka", zookeeper, classpath) as server:
            kafka = measure(server, "Apache Kafka", cases, options)
    for line in lines(ours, kafka):
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few short cases, to see that all works")
    parser.add_argument("--seconds", type=float, default=1.5, help="time to produce for in each case")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases whose titles have these")
    parser.add_argument("--directory", type=Path, help="where the servers write; default: temporary")
    options = parser.parse_args()
    options.warm_up_seconds, options.latency_seconds = WARM_UP_SECONDS, LATENCY_SECONDS
    if options.quick:
        options.seconds = min(options.seconds, 0.3)
        options.warm_up_seconds, options.latency_seconds = 0.3, 1.0
    reason = missing_tool()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    directory = Path(tempfile.mkdtemp(prefix="kafka-comparison-", dir=options.directory))
    try:
        compare(directory, options)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
