"""`mirrormaker import` by itself: what goes where, and exit codes."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.conftest import mirrormaker
from tests.importing.imports import ONE_WAY, write

TEXT = f"{ONE_WAY}topics = orders\nreplication.factor = 3\n"


def test_the_topology_goes_to_stdout_and_notes_to_stderr(tmp_path: Path) -> None:
    file = write(tmp_path, TEXT)
    done = mirrormaker("import", str(file))
    assert done.returncode == 0
    assert done.stdout.startswith("# Made by `mirrormaker import` of 'mm2.properties'.\nclusters:\n  a:\n")
    assert done.stderr.startswith(f"note: {file}:6: replication.factor: left out: ")
    assert done.stderr.count("\n") == 1


def test_what_is_saved_is_valid(tmp_path: Path) -> None:
    to = tmp_path / "topology.yaml"
    made = mirrormaker("import", str(write(tmp_path, TEXT)), "--out", str(to))
    assert (made.returncode, made.stdout) == (0, "")
    told = mirrormaker("validate", str(to))
    assert (told.returncode, told.stdout) == (0, f"{to}: 2 clusters, 1 routes, 0 pipelines, no problems\n")


def test_with_positions_it_starts_there(tmp_path: Path) -> None:
    record = '["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"orders"}] {"offset":41}\n'
    positions = write(tmp_path, record, "offsets")
    done = mirrormaker("import", str(write(tmp_path, TEXT)), "--positions", str(positions))
    assert done.returncode == 0
    assert "orders:\n        0: 42\n" in done.stdout


def test_nothing_is_written_where_something_is_wrong(tmp_path: Path) -> None:
    to = tmp_path / "topology.yaml"
    files = [write(tmp_path, f"{TEXT}tasks.max = x\n"), write(tmp_path, "clusters =\n", "other.properties")]
    done = mirrormaker("import", *map(str, files), "--out", str(to))
    assert (done.returncode, done.stdout) == (1, "")
    assert not to.exists()
    assert done.stderr.splitlines() == [
        f"{files[0]}:7: tasks.max: expected a whole number, not 'x'",
        f"{files[1]}:1: clusters: names no cluster",
    ]


def test_where_it_cannot_be_saved_is_told(tmp_path: Path) -> None:
    to = tmp_path / "absent" / "topology.yaml"
    done = mirrormaker("import", str(write(tmp_path, TEXT)), "--out", str(to))
    assert (done.returncode, done.stderr) == (1, f"{to}: cannot be written: No such file or directory\n")
