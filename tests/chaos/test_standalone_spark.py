"""Spark on a cluster of its own, whose executors are killed, alone or among everything else there is."""

from __future__ import annotations

import stat
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from broker.child_process import ChildProcess
from broker.embedded import EmbeddedCluster
from broker.loopback import LOOPBACK
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance, Victims
from tests.chaos.load import PARTITIONS, Writer, create_topic
from tests.chaos.pipeline_daemon import CONTINUOUS, PipelineDaemon, Places
from tests.chaos.pipeline_daemon import COPY as PIPELINE_COPY
from tests.chaos.pipeline_daemon import TOPIC as PIPELINE_TOPIC
from tests.chaos.pipeline_daemon import write as write_numbers
from tests.chaos.spark_loads import PATIENCE_SECONDS, Loader, read_files
from tests.chaos.standalone_spark import SETTINGS, WORKERS, StandaloneSpark
from tests.daemon.conftest import MirrorFactory, MirrorProcess, wait_until
from tests.daemon.killed_mirrors import write

TOPIC, COPY = "flights", "jfk.flights"
RECORDS = 60_000
RECORDS_PER_TASK = 600
RECORDS_PER_SECOND = 200
RECORDS_PER_ROUND = 600
LINE_VICTIMS = ["driver", "executor", "worker", "daemon", "source", "aggregate"]
PIPELINE_VICTIMS = ["executor", "Python", "worker", "driver", "JVM", "daemon", "node"]

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path / "spark") as cluster:
        yield cluster


def tasks_committed(target: Path) -> int:
    """Of a load that goes on."""
    return sum(1 for _ in target.glob("_temporary/0/task_*"))


def test_an_executor_that_is_killed_in_the_middle_of_a_load_changes_nothing(
    node: EmbeddedCluster, spark: StandaloneSpark, disturbance: Disturbance, tmp_path: Path
) -> None:
    address = str(node.bootstrap[0])
    create_topic(address, TOPIC)
    write(node, range(RECORDS), partitions=PARTITIONS)
    target = tmp_path / "table"
    module = "tests.chaos.spark_batch_load"
    command = [sys.executable, "-m", module, address, TOPIC, str(target), spark.master]
    load = ChildProcess.start("load", [*command, str(RECORDS_PER_TASK)], tmp_path / "load.log")
    wanted = disturbance.chance.randint(1, RECORDS // RECORDS_PER_TASK // 2)
    load.wait_until(lambda: tasks_committed(target) >= wanted, timeout_ms=PATIENCE_SECONDS * 1000)
    before = spark.executors_started()
    assert spark.kill_executor(disturbance.chance)
    assert not (target / "_SUCCESS").exists()
    wait_until(load.has_exited, "the load ends", PATIENCE_SECONDS)
    assert (target / "_SUCCESS").exists(), load.log_tail()
    assert spark.executors_started() > before
    table = ds.dataset(target).to_table(columns=["partition", "offset", "value"]).to_pydict()
    rows = sorted(zip(table["partition"], table["offset"], map(int, table["value"]), strict=True))
    assert rows == sorted((number % PARTITIONS, number // PARTITIONS, number) for number in range(RECORDS))


class Line:
    """From the source over the mirror and the aggregate into a table; each of its parts may be killed."""

    def __init__(
        self,
        nodes: tuple[EmbeddedCluster, EmbeddedCluster],
        mirror: MirrorProcess,
        spark: StandaloneSpark,
        loader: Loader,
    ) -> None:
        self._nodes = nodes
        self._mirror = mirror
        self._spark = spark
        self.loader = loader

    def disturb(self, victim: str, disturbance: Disturbance) -> bool:
        """Kill it, and start what does not start by itself; False where it was not there."""
        was_there = True
        match victim:
            case "driver":
                self.loader.kill()
            case "executor":
                was_there = self._spark.kill_executor(disturbance.chance)
            case "worker":
                self._spark.kill_worker(disturbance.chance)
            case "daemon":
                self._mirror.kill()
                self._mirror.start()
            case "source" | "aggregate":
                disturbance.crash(self._nodes[victim == "aggregate"])
        self.loader.ensure()
        return was_there

    def wait_until_copied(self) -> None:
        """Until the aggregate has everything."""
        wait_until(lambda: _is_copied(self._mirror), "everything is copied", PATIENCE_SECONDS)


def _is_copied(mirror: MirrorProcess) -> bool:
    told = mirror.status()
    return bool(told["lag"]) and told["lag"]["messages"] == 0


@pytest.fixture
def line(
    node: EmbeddedCluster, other_node: EmbeddedCluster, spark: StandaloneSpark, tmp_path: Path
) -> Iterator[Line]:
    create_topic(str(node.bootstrap[0]), TOPIC)
    with ExitStack() as stack:
        mirror = MirrorFactory(tmp_path, stack)(node, other_node, delivery="exactly_once")
        mirror.start()
        mirror.wait_copied()
        loader = Loader(other_node, tmp_path, "--topic", COPY, "--master", spark.master)
        stack.callback(loader.kill)
        yield Line((node, other_node), mirror, spark, loader)


def test_the_table_of_an_aggregate_is_what_was_written_whatever_is_killed(
    node: EmbeddedCluster, line: Line, disturbance: Disturbance, tmp_path: Path
) -> None:
    address = str(node.bootstrap[0])
    with Writer(address, TOPIC, codec="snappy", records_per_second=RECORDS_PER_SECOND) as writer:
        line.loader.wait_until_working()
        victims = Victims(disturbance.chance, LINE_VICTIMS)
        for _ in disturbance.rounds_until(victims.have_all_been_hit):
            victim = victims.draw()
            victims.note(victim, was_there=line.disturb(victim, disturbance))
    line.wait_until_copied()
    line.loader.wait_until_caught_up()
    found = Counter((partition, int(value.split()[0])) for partition, value in read_files(tmp_path))
    written = {(partition, n) for partition, records in writer.acknowledged.items() for _, n in records}
    assert found == Counter(written), victims.hit


@pytest.fixture
def daemon(node: EmbeddedCluster, spark: StandaloneSpark, tmp_path: Path) -> Iterator[PipelineDaemon]:
    """Its pipeline runs on the cluster, without an end."""
    address = str(node.bootstrap[0])
    create_topic(address, PIPELINE_TOPIC)
    create_topic(address, PIPELINE_COPY)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\npwd >> "{python}.places"\nexec {sys.executable} "$@"\n')
    python.chmod(stat.S_IRWXU)
    settings = {
        **SETTINGS,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.pyspark.python": str(python),
    }
    daemon = PipelineDaemon(node, tmp_path, CONTINUOUS, master=spark.master, spark=settings)
    daemon.process.start()
    yield daemon
    daemon.close()


def test_a_daemons_pipeline_on_a_cluster_holds_every_record_once_whatever_is_killed(
    node: EmbeddedCluster,
    spark: StandaloneSpark,
    daemon: PipelineDaemon,
    disturbance: Disturbance,
    tmp_path: Path,
) -> None:
    written, victims = Places(), Victims(disturbance.chance, PIPELINE_VICTIMS)
    for round_number in disturbance.rounds_until(victims.have_all_been_hit):
        first = (round_number - 1) * RECORDS_PER_ROUND
        written += write_numbers(daemon, PIPELINE_TOPIC, range(first, first + RECORDS_PER_ROUND))
        daemon.wait_until_working()
        disturbance.pause(0.0, 2.0)
        victim = victims.draw()
        victims.note(victim, was_there=_disturb(victim, node, spark, daemon, disturbance))
    daemon.wait_until_loaded(written.total())
    assert daemon.process.stop() == 0
    assert "/spark/work-" in (tmp_path / "python.places").read_text(), (
        "executors run the Python that is named"
    )
    assert spark.executors_started() > WORKERS
    assert daemon.loaded() == written, victims.hit
    assert daemon.copied() == written, victims.hit
    daemon.assert_recorded_truly(written, victims.hit)


def _disturb(
    victim: str,
    node: EmbeddedCluster,
    spark: StandaloneSpark,
    daemon: PipelineDaemon,
    disturbance: Disturbance,
) -> bool:
    """As `Line.disturb`."""
    match victim:
        case "executor":
            return spark.kill_executor(disturbance.chance)
        case "Python":
            return spark.kill_python(disturbance.chance)
        case "worker":
            spark.kill_worker(disturbance.chance)
        case "driver":
            return daemon.kill_driver()
        case "JVM":
            return daemon.kill_jvm()
        case "daemon":
            daemon.process.kill()
            daemon.process.start()
        case "node":
            disturbance.crash(node)
    return True
