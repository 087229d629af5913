"""Daemons on two hosts with one pipeline, as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.run_record import RunState
from mirrormaker.topology.model import PipelineName
from tests.conftest import ClusterFactory, until
from tests.daemon.conftest import MirrorProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_a_run_of_a_daemon_that_is_killed_is_run_by_the_other(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node, begun = cluster("aggregate"), tmp_path / "begun"
    begun.mkdir()
    daemons = []
    for number in (1, 2):
        topology = {
            "clusters": {"aggregate": {"bootstrap": [str(node.bootstrap[0])]}},
            "routes": [],
            "pipelines": [
                {
                    "name": "work",
                    "cluster": "aggregate",
                    "job": "tests.pipelines.waiting_job:run",
                    "arguments": {"folder": str(begun)},
                    "schedule": {"every": "1h"},
                    "master": "local[1]",
                }
            ],
            "data_dir": f"data-{number}",
        }
        file = tmp_path / f"topology-{number}.yaml"
        file.write_text(yaml.safe_dump(topology))
        daemons.append(MirrorProcess(file, tmp_path / f"daemon-{number}.log"))
    try:
        for daemon in daemons:
            daemon.start()
        until(lambda: any(begun.iterdir()), seconds=240)
        (first,) = begun.iterdir()
        killed = int(first.name[len("data-")]) - 1
        other = 1 - killed
        daemons[killed].kill()
        until(lambda: any(begun.glob(f"data-{other + 1}.*")), seconds=240)
        (begun / "GO").touch()
        folder = PipelineFolder(tmp_path / f"data-{other + 1}", PipelineName("work"))
        until(lambda: (run := folder.last_run()) is not None and run.state is RunState.SUCCEEDED)
        assert len(list(begun.glob("data-*"))) == 2, "one run each"
        assert daemons[other].stop() == 0
    finally:
        for daemon in daemons:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.kill()
