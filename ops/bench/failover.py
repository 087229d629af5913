"""How long nobody serves a partition when nodes go, and how long a cluster is without a controller.

    python -m ops.bench.failover [--only WORD ...] [--session-seconds S] [--partitions N] [--rounds N]

Three nodes and one ZooKeeper, real processes; every partition has three replicas, two of which must be in
sync. Records are written by librdkafka's idempotent producer with its defaults and acks=all, one after the
other to each partition.

killed: a node is killed by SIGKILL and stays away. Time until the partitions that it led are written again;
without a note of the dead process nothing ends its session but ZooKeeper's timeout. Goal: that and 1 s.
shutdown: each node in turn ends by SIGTERM. The longest time between two answers of one partition, beside the
longest before; and the records that failed. Goal: 300 ms more, no record.
controller: the node of the controller is killed, with `--controller-partitions` in the cluster. Time from the
end of its session until another is elected, and until every partition has a leader that is alive, known to
all nodes and serving. Goal: 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

from broker.embedded import EmbeddedCluster
from broker.telemetry import configure_logging
from ops.bench._acknowledgements import Acknowledgements
from ops.bench._controller_failover import fail_over
from ops.bench._nodes import nodes
from ops.bench._replicated_topics import create, leaders, wait_until_in_sync

TOPIC = "failover"
REPLICAS = 3
CALM_SECONDS = 5.0
"""How long records are written before a node goes, and after."""
WRITABLE_GOAL_SECONDS = 1.0
SHUTDOWN_GOAL_MS = 300
CONTROLLER_GOAL_SECONDS = 5.0
START_TIMEOUT_MS = 120_000
SCENES = ("killed", "shutdown", "controller")


def measure_killed(cluster: EmbeddedCluster, partitions: int, session_seconds: float, rounds: int) -> bool:
    """Print how long the partitions of a killed node are not written; whether the goal is met."""
    goal = session_seconds + WRITABLE_GOAL_SECONDS
    is_met = True
    for number in range(1, rounds + 1):
        led = leaders(cluster, TOPIC)
        victim = led[0]
        with Acknowledgements(cluster, TOPIC, partitions) as written:
            sleep(CALM_SECONDS)
            killed_at = monotonic()
            cluster.kill_node(victim)
            written.wait_for_all(after=killed_at + session_seconds / 2)
            sleep(CALM_SECONDS)
        lost = [partition for partition, leader in led.items() if leader == victim]
        seconds = max(written.resumed(partition, killed_at) for partition in lost)
        is_met &= seconds <= goal and not written.failures
        print(
            f"killed      round {number}: node {victim}, leader of {len(lost)} partitions: written again "
            f"after {seconds:.2f} s (session {session_seconds:g} s, goal {goal:g}), "
            f"failed records {len(written.failures)}",
            flush=True,
        )
        cluster.start_node(victim)
        wait_until_in_sync(cluster)
    return is_met


def measure_shutdown(cluster: EmbeddedCluster, partitions: int, rounds: int) -> bool:
    """Print how long partitions are not written while nodes stop in order; whether the goal is met."""
    is_met = True
    for number in range(1, rounds + 1):
        for broker_id in range(1, REPLICAS + 1):
            led = sum(leader == broker_id for leader in leaders(cluster, TOPIC).values())
            with Acknowledgements(cluster, TOPIC, partitions) as written:
                sleep(CALM_SECONDS)
                begun_at = monotonic()
                code = cluster.stop_node(broker_id)
                ended_at = monotonic()
                sleep(CALM_SECONDS)
            before = 1000 * max(written.gaps(begun_at - CALM_SECONDS + 1, begun_at))
            gaps = sorted(1000 * gap for gap in written.gaps(begun_at, ended_at + CALM_SECONDS - 1))
            longest, median = gaps[-1], gaps[len(gaps) // 2]
            is_met &= longest - before <= SHUTDOWN_GOAL_MS and not written.failures and code == 0
            print(
                f"shutdown    round {number}: node {broker_id}, leader of {led} partitions, exit {code} "
                f"after {ended_at - begun_at:.2f} s: longest gap {longest:.0f} ms, of the median partition "
                f"{median:.0f} ms (before: {before:.0f}, goal {SHUTDOWN_GOAL_MS} more), "
                f"failed records {len(written.failures)}",
                flush=True,
            )
            cluster.start_node(broker_id)
            wait_until_in_sync(cluster)
    return is_met


def measure_controller(cluster: EmbeddedCluster, partitions: int, session_seconds: float) -> bool:
    """Print how long it takes until another controller has done its work; whether the goal is met."""
    times = asyncio.run(fail_over(cluster, partitions=partitions))
    print(
        f"controller  {partitions} partitions of {REPLICAS} replicas: session over after "
        f"{times.session_over:.2f} s (session {session_seconds:g} s); from then on: elected "
        f"{times.elected - times.session_over:.2f} s, leaders known to all nodes and serving "
        f"{times.serving - times.session_over:.2f} s (goal {CONTROLLER_GOAL_SECONDS:g}); "
        f"since the kill {times.serving:.2f} s",
        flush=True,
    )
    return times.serving - times.session_over <= CONTROLLER_GOAL_SECONDS


def measure(directory: Path, arguments: argparse.Namespace) -> bool:
    """Print the figures; whether all goals are met."""
    session_seconds: float = arguments.session_seconds
    settings = {
        "zookeeper.session.timeout.ms": int(session_seconds * 1000),
        "min.insync.replicas": REPLICAS - 1,
    }
    is_met = True
    scenes: Sequence[str] = arguments.only
    with nodes(directory / "few", settings, brokers=REPLICAS) as cluster:
        create(cluster, TOPIC, arguments.partitions, REPLICAS)
        if "killed" in scenes:
            is_met &= measure_killed(cluster, arguments.partitions, session_seconds, arguments.rounds)
        if "shutdown" in scenes:
            is_met &= measure_shutdown(cluster, arguments.partitions, arguments.rounds)
    if "controller" in scenes:
        with nodes(directory / "many", settings, brokers=REPLICAS, timeout_ms=START_TIMEOUT_MS) as cluster:
            create(cluster, TOPIC, arguments.controller_partitions, REPLICAS)
            is_met &= measure_controller(cluster, arguments.controller_partitions, session_seconds)
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SCENES, nargs="+", default=SCENES, help="what to measure")
    parser.add_argument("--session-seconds", type=float, default=6.0, help="zookeeper.session.timeout.ms")
    parser.add_argument("--partitions", type=int, default=12, help="that are written while nodes go")
    parser.add_argument("--controller-partitions", type=int, default=2_000, help="of a new controller")
    parser.add_argument("--rounds", type=int, default=2, help="how often nodes go")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; default: temporary")
    arguments = parser.parse_args()
    configure_logging()
    directory = Path(tempfile.mkdtemp(prefix="failover-", dir=arguments.directory))
    try:
        return 0 if measure(directory, arguments) else 1
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
