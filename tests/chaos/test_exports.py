"""The rows of a table go back to a topic while the runs that export them are killed at any step: for every
time that the export is due the topic has them once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import CUT_OFF, RunState
from mirrormaker.topology.model import PipelineName
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.chaos.load import create_topic
from tests.chaos.pipeline_daemon import PATIENCE_SECONDS, records_of

TOPIC = "again"
ROWS, FILES = 1_000, 5
STEPS_MAX = 36
"""About as many as there are."""
NEVER = 1_000_000

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 3 * PATIENCE_SECONDS)


def make_topology(address: str, folder: Path) -> Path:
    """With one export, of a table of several files."""
    table = folder / "table"
    table.mkdir()
    for number in range(FILES):
        ids = list(range(number, ROWS, FILES))
        pq.write_table(
            pa.table({"id": ids, "name": [f"row {each}" for each in ids]}), table / f"{number}.parquet"
        )
    file = folder / "topology.yaml"
    export = {
        "name": "export",
        "job": "mirrormaker.spark.jobs.export:run",
        "arguments": {"table": str(table), "cluster": "aggregate", "topic": TOPIC, "key": "name"},
        "schedule": {"every": "1h"},
        "master": "local[2]",
    }
    clusters = {"aggregate": {"bootstrap": [address]}}
    file.write_text(
        yaml.safe_dump({"clusters": clusters, "routes": [], "pipelines": [export], "data_dir": "data"})
    )
    return file


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
    file = make_topology(address, tmp_path)
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
    runs = PipelineFolder(tmp_path / "data", PipelineName("export")).runs()
    succeeded = [run for run in runs if run.state is RunState.SUCCEEDED]
    assert all(run.figures == {"rows": ROWS} for run in succeeded)
    assert {run.problem for run in runs if run.state is RunState.FAILED} <= {CUT_OFF}
    assert len(succeeded) >= due_ms >= 1
