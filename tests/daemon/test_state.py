"""What a daemon leaves in its `data_dir`."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from broker.errors import ConfigurationError
from mirrormaker import folder_lock
from mirrormaker.state import STATE_VERSION, AskedDirectory, StateDirectory


def test_a_directory_has_one_daemon_at_a_time(tmp_path: Path) -> None:
    directory, same = StateDirectory(tmp_path), StateDirectory(tmp_path)
    assert not directory.is_locked()
    with directory.locked():
        assert same.is_locked()
        with pytest.raises(ConfigurationError, match="another daemon"), same.locked():
            pass
    assert not same.is_locked()


def test_who_looks_for_a_daemon_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked():
        pass
    looking = os.open(directory.path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert not directory.is_locked()
    monkeypatch.setattr(folder_lock.time, "sleep", lambda _: os.close(looking))
    with directory.locked():
        assert StateDirectory(tmp_path).is_locked()


def test_the_name_of_a_daemon_survives_restarts(tmp_path: Path) -> None:
    with StateDirectory(tmp_path).locked():
        name = StateDirectory(tmp_path).daemon_id()
    assert StateDirectory(tmp_path).daemon_id() == name
    assert len(name) == 12


@pytest.mark.parametrize("content", [b"", b"\n", b"caf\xc3\xa9\n", b"\xff\xfe", bytes(13)])
def test_a_name_that_was_damaged_is_made_anew(tmp_path: Path, content: bytes) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked():
        (directory.path / "id").write_bytes(content)
        name = directory.daemon_id()
        assert len(name) == 12
        assert directory.daemon_id() == name


def test_a_name_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    (directory.path / "id.tmp").mkdir(parents=True)  # as where the disk is full
    with directory.locked(), pytest.raises(ConfigurationError, match="daemon/id: cannot be kept"):
        directory.daemon_id()


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked():
        assert directory.read() is None
        directory.write({"version": STATE_VERSION, "routes": {}})
        assert StateDirectory(tmp_path).read() == {"version": STATE_VERSION, "routes": {}}


def test_what_a_daemon_told_is_gone_when_the_next_one_starts(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked():
        directory.write({"version": STATE_VERSION})
    assert directory.read() is not None
    with StateDirectory(tmp_path).locked():
        assert directory.read() is None


def test_a_directory_that_a_file_asks_for_is_held_as_soon_as_it_can_be(tmp_path: Path) -> None:
    asked, directory = AskedDirectory(tmp_path / "own"), StateDirectory(tmp_path / "other")
    with directory.locked():
        asked.keep(tmp_path / "other", {"version": STATE_VERSION}, "")
        assert directory.read() is None
    asked.keep(tmp_path / "other", {"version": STATE_VERSION}, "text")
    assert directory.is_locked()
    assert directory.read() == {"version": STATE_VERSION}
    assert directory.kept_topology() == "text"
    (tmp_path / "file").touch()
    asked.keep(tmp_path / "file", {}, "")  # nothing can be made there
    assert not directory.is_locked()
    asked.keep(tmp_path / "own", {}, "")
    assert not (tmp_path / "own").exists()
    asked.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 99}'])
def test_a_state_of_another_version_or_in_pieces_is_none(tmp_path: Path, content: str) -> None:
    directory = StateDirectory(tmp_path)
    with directory.locked():
        (directory.path / "state.json").write_text(content)
        assert directory.read() is None
