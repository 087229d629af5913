"""Ids of clusters are kept for times when these are away."""

from __future__ import annotations

from pathlib import Path

from mirrormaker.cluster_ids import ClusterIds
from mirrormaker.state import StateDirectory
from mirrormaker.topology.model import ClusterName

A, B, C = map(ClusterName, "abc")


def directory(folder: Path) -> StateDirectory:
    state = StateDirectory(folder)
    state.path.mkdir(parents=True, exist_ok=True)
    return state


def test_what_was_seen_is_known_after_a_restart(tmp_path: Path) -> None:
    ids = ClusterIds(directory(tmp_path))
    ids.see(A, "first")
    ids.see(B, None)
    assert ClusterIds(directory(tmp_path)).known([A, B, C]) == {A: "first"}


def test_a_cluster_that_was_made_anew_has_its_new_id(tmp_path: Path) -> None:
    ids = ClusterIds(directory(tmp_path))
    ids.see(A, "first")
    ids.see(A, "second")
    assert ids.known([A]) == ClusterIds(directory(tmp_path)).known([A]) == {A: "second"}


def test_processes_of_one_daemon_do_not_forget_what_the_others_saw(tmp_path: Path) -> None:
    daemon, worker = ClusterIds(directory(tmp_path)), ClusterIds()
    daemon.see(A, "first")
    worker.see(B, "other")
    worker.keep_in(directory(tmp_path))
    worker.see(C, "third")
    assert worker.known([A, B, C]) == {A: "first", B: "other", C: "third"}
    daemon.see(A, "again")
    assert ClusterIds(directory(tmp_path)).known([A, B, C]) == {A: "again", B: "other", C: "third"}


def test_a_file_that_holds_something_else_is_none(tmp_path: Path) -> None:
    file = directory(tmp_path).path / "clusters.json"
    for text in ("[1]", "{", '{"a": 1}'):
        file.write_text(text)
        assert ClusterIds(directory(tmp_path)).known([A]) == {}
