"""Pipelines behind real mirrors, all in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.embedded import EmbeddedCluster
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunRecord, RunState
from mirrormaker.topology.model import PipelineName
from tests.conftest import ClusterFactory, until
from tests.daemon.conftest import MirrorProcess
from tests.daemon.test_mirror import create, producer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
RUN_SECONDS = 600
COUNT = 40


def write(cluster: EmbeddedCluster, topic: str, name: str) -> None:
    writer = producer(cluster)
    for number in range(COUNT):
        value = json.dumps({"from": name, "id": number}).encode()
        writer.produce(topic, value, partition=number % 2, timestamp=int(time.time() * 1000) - 1000)
    assert writer.flush(60) == 0


class Line:
    """Two sources that feed one topic of an aggregate, and pipelines on that."""

    def __init__(self, cluster: ClusterFactory, folder: Path) -> None:
        self.clusters = {name: cluster(name) for name in ("jfk", "lga", "aggregate")}
        self.folder = folder
        self.file = folder / "topology.yaml"
        for each in self.clusters.values():
            create(each, "flights", 2)
        for name in ("jfk", "lga"):
            write(self.clusters[name], "flights", name)

    def say(self, **pipelines: dict[str, Any]) -> None:
        """The topology's pipelines."""
        usual = {"cluster": "aggregate", "topics": {"include": ["flights"]}, "format": "json"}
        usual["schema"] = "`from` string, id int"
        topics = {"include": ["flights"], "name": "{topic}", "merge": True}
        told = {
            "clusters": {
                name: {"bootstrap": [str(each.bootstrap[0])]} for name, each in self.clusters.items()
            },
            "routes": [{"from": name, "to": "aggregate", "topics": topics} for name in ("jfk", "lga")],
            "pipelines": [{"name": name, **usual, **keys} for name, keys in pipelines.items()],
        }
        self.file.write_text(yaml.safe_dump(told))

    def last_run(self, name: str) -> RunRecord | None:
        return PipelineFolder(self.folder / "data", PipelineName(name)).last_run()

    def run(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mirrormaker.cli", "pipeline", "run", str(self.file), name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_run_waits_until_both_sources_of_a_topic_have_arrived(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    line = Line(cluster, tmp_path)
    line.say(
        whole={"sinks": [{"parquet": "whole"}], "require": "complete", "patience": "20m"},
        marked={"sinks": [{"parquet": "marked"}], "require": "mark"},
    )
    marked = line.run("marked")
    said, _ = marked.communicate(timeout=RUN_SECONDS)
    assert marked.returncode == 0, said
    record = line.last_run("marked")
    assert record is not None
    assert (record.state, record.rows_read) == (RunState.SUCCEEDED, 0)
    assert {missing.split(":")[0] for missing in record.incomplete} == {"jfk", "lga"}

    daemon = MirrorProcess(line.file, tmp_path / "daemon.log")
    whole = line.run("whole")
    try:
        until(lambda: (run := line.last_run("whole")) is not None and run.state is RunState.WAITING)
        waiting = line.last_run("whole")
        assert waiting is not None
        assert {missing.split(":")[0] for missing in waiting.incomplete} == {"jfk", "lga"}
        daemon.start()
        said, _ = whole.communicate(timeout=RUN_SECONDS)
    finally:
        whole.kill()
        if daemon.process is not None:
            daemon.stop()
    assert whole.returncode == 0, said
    record = line.last_run("whole")
    assert record is not None
    assert (record.state, record.incomplete, record.rows_read) == (RunState.SUCCEEDED, (), 2 * COUNT)
