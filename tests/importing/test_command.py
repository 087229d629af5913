"""`mirrormaker import` by itself: what goes where, and exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.cli import main
from tests.importing.imports import ONE_WAY, write

TEXT = f"{ONE_WAY}topics = orders\nreplication.factor = 3\n"


def test_the_topology_goes_to_stdout_and_notes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, TEXT)
    assert main(["import", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# Made by `mirrormaker import` of 'mm2.properties'.\nclusters:\n  a:\n")
    assert err.startswith(f"note: {file}:6: replication.factor: left out: ")
    assert err.count("\n") == 1


def test_what_is_saved_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "topology.yaml"
    assert main(["import", str(write(tmp_path, TEXT)), "--out", str(to)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["validate", str(to)]) == 0
    assert capsys.readouterr().out == f"{to}: 2 clusters, 1 routes, 0 pipelines, no problems\n"


def test_with_positions_it_starts_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = '["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"orders"}] {"offset":41}\n'
    positions = write(tmp_path, record, "offsets")
    assert main(["import", str(write(tmp_path, TEXT)), "--positions", str(positions)]) == 0
    assert "orders:\n        0: 42\n" in capsys.readouterr().out


def test_nothing_is_written_where_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "topology.yaml"
    files = [write(tmp_path, f"{TEXT}tasks.max = x\n"), write(tmp_path, "clusters =\n", "other.properties")]
    assert main(["import", *map(str, files), "--out", str(to)]) == 1
    assert not to.exists()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{files[0]}:7: tasks.max: expected a whole number, not 'x'",
        f"{files[1]}:1: clusters: names no cluster",
    ]


def test_where_it_cannot_be_saved_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "absent" / "topology.yaml"
    assert main(["import", str(write(tmp_path, TEXT)), "--out", str(to)]) == 1
    assert capsys.readouterr().err == f"{to}: cannot be written: No such file or directory\n"
