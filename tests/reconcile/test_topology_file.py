"""The file under a daemon: half-written, moved away, replaced; and what is in force meanwhile."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker.reconcile import topology_file
from mirrormaker.reconcile.live_topology import LiveTopology, LoadedTopology, OutdatedTopologyError
from mirrormaker.reconcile.routes import RouteSteps
from mirrormaker.reconcile.topology_file import TopologyFile, TopologyText
from mirrormaker.topology.model import Topology

TEXT = """\
generation: {generation}
clusters:
  jfk: {{bootstrap: ["127.0.0.1:1"]}}
  aggregate: {{bootstrap: ["127.0.0.1:2"]}}
routes:
  - {{from: jfk, to: aggregate, topics: {{include: [flights]}}}}
"""


def text(generation: int = 1) -> str:
    return TEXT.format(generation=generation)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "topology.yaml"
    file.write_text(text())
    return file


def test_a_change_counts_once_it_has_stood_still_from_one_look_to_the_next(path: Path) -> None:
    file = TopologyFile(path)
    file.read()
    assert file.look() is None
    path.write_text("clus")
    assert file.look() is None
    path.write_text(text(2))
    assert file.look() is None
    changed = file.look()
    assert changed is not None
    assert changed.text == text(2)
    assert file.look() is None


def test_a_file_that_is_away_for_a_look_is_being_renamed(path: Path) -> None:
    file = TopologyFile(path)
    file.read()
    away = path.rename(path.with_suffix(".bak"))
    assert file.look() is None
    away.rename(path)
    assert file.look() is None


def test_a_file_that_stays_away_is_told_once_and_found_again(path: Path) -> None:
    file = TopologyFile(path)
    file.read()
    away = path.rename(path.with_suffix(".bak"))
    assert file.look() is None
    with pytest.raises(ConfigurationError, match="No such file"):
        file.look()
    assert file.look() is None
    away.rename(path)
    assert file.look() is None
    assert file.look() is not None


def test_a_replaced_file_keeps_its_mode_and_the_link_that_leads_to_it(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    written = TopologyFile(link).replace(text(2))
    assert written.text == path.read_text() == text(2)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [link, path]


def test_a_folder_that_cannot_be_written_is_a_clear_error(path: Path, tmp_path: Path) -> None:
    gone = TopologyFile(tmp_path / "none" / "topology.yaml")
    with pytest.raises(ConfigurationError, match=r"topology\.yaml: cannot be written: No such file"):
        gone.replace(text())


class Subject:
    """Takes every topology but the thirteenth generation."""

    def __init__(self) -> None:
        self.applied: list[int] = []

    def check(self, topology: Topology) -> None:
        if topology.generation == 13:
            raise ConfigurationError(["not that one"])

    def apply(self, loaded: LoadedTopology) -> RouteSteps:
        self.applied.append(loaded.topology.generation)
        return RouteSteps()


def live_topology(path: Path, subject: Subject) -> LiveTopology:
    file = TopologyFile(path)
    source = file.read()
    return LiveTopology(LoadedTopology(topology=source.parse(), source=source), file, subject, SystemClock())


def test_a_file_with_errors_changes_nothing_and_is_told_until_it_is_mended(path: Path) -> None:
    subject = Subject()
    live = live_topology(path, subject)
    for bad in ("routes: [", text(13)):
        path.write_text(bad)
        with pytest.raises(ConfigurationError):
            asyncio.run(live.reload())
        assert live.problem
        assert live.loaded.source.text == text()
    path.write_text(text(2))
    asyncio.run(live.reload())
    assert (live.problem, live.reloads, live.failures, subject.applied) == (None, 1, 2, [2])


def test_a_posted_topology_is_in_the_file_or_nothing_has_changed(path: Path) -> None:
    subject = Subject()
    live = live_topology(path, subject)
    for bad in ("routes: [", text(13)):
        with pytest.raises(ConfigurationError):
            asyncio.run(live.replace(bad))
    with pytest.raises(OutdatedTopologyError):
        asyncio.run(live.replace(text(3), expected_digest="0" * 16))
    assert (path.read_text(), subject.applied, live.problem) == (text(), [], None)
    asyncio.run(live.replace(text(2), expected_digest=live.loaded.source.digest))
    assert (path.read_text(), subject.applied) == (text(2), [2])


def test_a_post_with_a_condition_spares_an_edit_that_is_not_in_force(path: Path) -> None:
    subject = Subject()
    live = live_topology(path, subject)
    in_force = live.loaded.source.digest
    for edit in (text(5), "routes: ["):
        path.write_text(edit)
        with pytest.raises(OutdatedTopologyError, match="an edit that is not in force"):
            asyncio.run(live.replace(text(2), expected_digest=in_force))
        assert (path.read_text(), subject.applied) == (edit, [])
    asyncio.run(live.replace(text(2)))
    assert (path.read_text(), subject.applied) == (text(2), [2])


def test_who_is_quicker_than_a_post_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TopologyFile(path)
    file.read()
    flush = topology_file._flush_folder

    def overtake(folder: Path) -> None:
        flush(folder)
        path.write_text(text(7))

    monkeypatch.setattr(topology_file, "_flush_folder", overtake)
    file.replace(text(2))
    seen = file.look() or file.look()
    assert seen is not None
    assert seen.text == text(7)


def test_a_text_that_the_loader_fails_at_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    live = live_topology(path, subject)

    def fail(_: TopologyText) -> Topology:
        raise OverflowError("too much")

    monkeypatch.setattr(TopologyText, "parse", fail)
    with pytest.raises(ConfigurationError, match="too much"):
        asyncio.run(live.replace(text(2)))
    with pytest.raises(ConfigurationError, match="too much"):
        asyncio.run(live.reload())
    assert live.problem is not None
    assert "too much" in live.problem
    assert (path.read_text(), subject.applied, live.failures) == (text(), [], 1)
