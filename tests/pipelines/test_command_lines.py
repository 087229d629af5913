"""`mirrormaker pipeline` where nothing is to be run."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.conftest import mirrormaker

JOB = (
    'clusters: {a: {bootstrap: ["127.0.0.1:1"]}}\n'
    "routes: []\n"
    "pipelines:\n"
    "  - name: p\n"
    "    job: nowhere.at:all\n"
    "    schedule: {every: 1h}\n"
)


def test_a_job_has_no_windows_to_be_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(JOB)
    done = mirrormaker("pipeline", "reload", str(file), "p", "--from", "2020-01-01")
    assert done.returncode == 1
    assert done.stderr == "'p' is a job, which has no windows: 'pipeline run' runs it\n"
    assert not (tmp_path / "data").exists()
