"""The rows of a table go back to a topic while the runs that export them are killed at any step: for every
time that the export is due the topic has them once.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_record import CUT_OFF, RunState
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import create_topic
from tests.chaos.pipeline_daemon import PATIENCE_SECONDS, RunDaemon, has_ended, records_of
from tests.client.running import until
from tests.daemon.conftest import mirrormaker

TOPIC = "again"
ROWS, FILES = 1_000, 5
MANY_ROWS = 200_000
"""A transaction with a part of so many is seen to be open."""
STEPS_MAX = 36
"""About as many as there are."""
NEVER = 1_000_000

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)


def make_daemon(address: str, folder: Path, rows: int, every: str) -> RunDaemon:
    """With one export, of a table of several files."""
    table = folder / "table"
    table.mkdir()
    for number in range(FILES):
        ids = list(range(number, rows, FILES))
        pq.write_table(
            pa.table({"id": ids, "name": [f"row {each}" for each in ids]}), table / f"{number}.parquet"
        )
    export = {
        "name": "export",
        "job": "mirrormaker.spark.jobs.export:run",
        "arguments": {"table": str(table), "cluster": "aggregate", "topic": TOPIC, "key": "name"},
        "schedule": {"every": every},
        "retry": {"attempts": 3, "backoff": "1s", "backoff_max": "2s"},
        "master": "local[2]",
    }
    clusters = {"aggregate": {"bootstrap": [address]}}
    topology = {"clusters": clusters, "routes": [], "pipelines": [export], "data_dir": "data"}
    return RunDaemon(topology, folder, "export")


def run(file: Path, due_ms: int, step: int = NEVER, seconds: float = 0.0) -> int:
    """One attempt; its exit code."""
    told = (str(file), "export", str(due_ms), str(step), str(seconds))
    with (file.parent / "runs.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos.killed_at_step", *told],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=os.environ,
        )
    return done.returncode


def test_rows_are_exported_once_wherever_the_export_is_killed(
    node: EmbeddedCluster, disturbance: Disturbance, tmp_path: Path
) -> None:
    address = str(node.bootstrap[0])
    create_topic(address, TOPIC)
    daemon = make_daemon(address, tmp_path, ROWS, every="1h")
    file = daemon.process.file
    due_ms, killed = 0, 0
    for due_ms in disturbance:
        chance = disturbance.chance
        step, seconds = chance.randint(1, STEPS_MAX), chance.choice([0.0, chance.uniform(0.0, 1.0)])
        killed += run(file, due_ms, step, seconds) != 0
        code = run(file, due_ms)
        assert code == 0, (step, seconds, (tmp_path / "runs.log").read_text()[-4000:])
        exported = Counter(key for key, _ in records_of(address, TOPIC))
        once = {f"row {number}".encode(): due_ms for number in range(ROWS)}
        assert exported == once, (step, seconds, Counter(exported.values()))
    runs = daemon.runs()
    succeeded = [run for run in runs if run.state is RunState.SUCCEEDED]
    assert all(run.figures == {"rows": ROWS} for run in succeeded)
    assert {run.problem for run in runs if run.state is RunState.FAILED} <= {CUT_OFF}
    assert len(succeeded) >= due_ms >= 1


@pytest.fixture
def daemon(node: EmbeddedCluster, tmp_path: Path) -> Iterator[RunDaemon]:
    """Exports again and again."""
    create_topic(str(node.bootstrap[0]), TOPIC)
    daemon = make_daemon(str(node.bootstrap[0]), tmp_path, MANY_ROWS, every="1s")
    daemon.process.start()
    yield daemon
    daemon.close()


def exports_done(daemon: RunDaemon) -> int:
    """Runs that have said so."""
    return sum(run.state is RunState.SUCCEEDED for run in daemon.runs())


async def kill_amid_transaction(node: EmbeddedCluster, victim: psutil.Process) -> bool:
    """Kill it once a transaction is open; whether that was open still when it was dead."""

    async def open_ones() -> set[str]:
        return {each.transactional_id for each in await admin.list_transactions(states=["Ongoing"])}

    async with Cluster(node.bootstrap) as cluster:
        admin = Admin(cluster)
        while not (found := await open_ones()):
            if has_ended(victim):
                return False
        victim.kill()
        await until(lambda: has_ended(victim))
        return bool(found & await open_ones())


def victim_of(daemon: RunDaemon, what: str) -> psutil.Process:
    """Of a run that is under way."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        process = daemon.jvm() if what == "JVM" else daemon.driver()
        found[:] = [] if process is None else [process]
        return process is not None

    daemon.process.until(is_there, f"there is a {what}", PATIENCE_SECONDS)
    return psutil.Process(daemon.process.pid) if what == "daemon" else found[0]


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("driver", "the process of the run was ended by SIGKILL"),
        ("JVM", "Spark's JVM was ended by SIGKILL"),
        ("daemon", CUT_OFF),
    ],
)
def test_an_export_that_is_killed_amid_its_transactions_is_made_once(
    node: EmbeddedCluster, daemon: RunDaemon, what: str, problem: str, tmp_path: Path
) -> None:
    while not asyncio.run(kill_amid_transaction(node, victim_of(daemon, what))):
        """Until one was open."""
        restart(daemon, what)
    restart(daemon, what)
    done = exports_done(daemon)
    daemon.process.until(lambda: exports_done(daemon) > done + 1, "exports go on", PATIENCE_SECONDS)
    assert daemon.process.stop() == 0
    last = mirrormaker("pipeline", "run", str(daemon.process.file), "export", seconds=PATIENCE_SECONDS)
    assert last.returncode == 0, last.stdout + last.stderr
    assert problem in {run.problem for run in daemon.runs()}
    (note,) = daemon.data.checkpoint.glob("*/export.json")
    exports = json.loads(note.read_text())["number"] + 1
    exported = Counter(key for key, _ in records_of(str(node.bootstrap[0]), TOPIC))
    assert exported == {f"row {number}".encode(): exports for number in range(MANY_ROWS)}
    due = {run.due_ms for run in daemon.runs() if run.state is RunState.SUCCEEDED}
    assert len(due) >= exports - 1, "each for a time of its own, but one by hand"


def restart(daemon: RunDaemon, what: str) -> None:
    """What does not start by itself."""
    if what == "daemon":
        daemon.process.kill()
        daemon.process.start()
