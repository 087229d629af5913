"""Checks of whole data directories."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from broker.errors import StorageError
from broker.records.batch import Codec, read_header, write_header
from broker.records.message_set import build_message_set
from broker.records.record import Record
from broker.storage.disk import SystemDisk
from broker.storage.log_directory import LogDirectory
from broker.storage.log_opening import open_log
from broker.storage.read_only_disk import ReadOnlyDisk
from broker.storage.segment_check import Problem, Severity
from broker.storage.verify import Verification
from broker.types import BrokerId, TopicId, TopicPartition
from tests.storage.samples import NOW_MS, SMALL, ManualClock, append, build, numbered

FLIGHTS = TopicPartition("flights", 0)
DELAYS = TopicPartition("delays", 3)
LOG = f"flights-0/{0:020d}.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory with two partitions, closed cleanly."""
    path = tmp_path / "data"
    directory = LogDirectory.open(
        SystemDisk(), path, ManualClock(), broker_id=BrokerId(1), cluster_id="cluster"
    )
    directory.load(lambda _: SMALL)
    for number, partition in enumerate((FLIGHTS, DELAYS)):
        log = directory.create_log(partition, TopicId(UUID(int=number + 1)), SMALL)
        for index in range(20):
            append(log, *numbered(4, size=40), timestamps=[NOW_MS + index * 10 + step for step in range(4)])
        append(log, b"x", producer=(7, 0, 0))
    directory.checkpoints.store_offsets()
    directory.close()
    return path


def problems(path: Path, *, in_use: bool = False, deep: bool = True) -> list[Problem]:
    return list(Verification(disk=ReadOnlyDisk(), path=path, in_use=in_use, deep=deep).problems())


def damages(path: Path, *, in_use: bool = False, deep: bool = True) -> list[Problem]:
    found = problems(path, in_use=in_use, deep=deep)
    return [problem for problem in found if problem.severity is Severity.DAMAGE]


def test_a_directory_that_says_not_whose_it_is_is_only_noted(root: Path) -> None:
    (root / "meta.properties").unlink()
    assert damages(root) == []
    assert [problem.path.name for problem in problems(root)] == ["meta.properties"]


def state_of(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file with its bytes, time of change and mode."""
    return {
        str(path): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in (root, *root.rglob("*"))
    }


def test_a_directory_that_was_closed_cleanly_has_no_problem(root: Path) -> None:
    check = Verification(disk=ReadOnlyDisk(), path=root)
    assert list(check.problems()) == []
    assert (check.tally.partitions, check.tally.entries, check.tally.records) == (2, 42, 162)
    assert check.tally.segments > 4
    assert check.tally.size == check.log_size()


def test_a_single_partition_is_checked_by_its_directory(root: Path) -> None:
    check = Verification(disk=ReadOnlyDisk(), path=root / "delays-3")
    assert list(check.problems()) == []
    assert check.tally.partitions == 1


def test_nothing_is_written_and_nothing_needs_to_be_writable(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state_of(root)
    try:
        assert problems(root) == []
        assert state_of(root) == before
    finally:
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize(
    "change",
    [
        lambda disk, path: disk.open(path, create=True),
        lambda disk, path: disk.write_file(path, b""),
        lambda disk, path: disk.rename(path, path),
        lambda disk, path: disk.remove(path),
        lambda disk, path: disk.make_directory(path),
        lambda disk, path: disk.remove_directory(path),
        lambda disk, path: disk.sync_directory(path),
        lambda disk, path: disk.lock(path),
        lambda disk, path: disk.open(path).pwrite(b"x", 0),
    ],
)
def test_the_disk_of_a_check_refuses_every_change(
    tmp_path: Path, change: Callable[[ReadOnlyDisk, Path], object]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(StorageError):
        change(ReadOnlyDisk(), path)
    assert path.read_bytes() == b"old"


def change_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def cut(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


DAMAGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a changed byte": (LOG, lambda path: change_byte(path, 100)),
    "a torn tail": (LOG, lambda path: cut(path, 5)),
    "an offset that goes back": (LOG, lambda path: path.write_bytes(path.read_bytes() * 2)),
    "a missing index": (f"flights-0/{0:020d}.index", Path.unlink),
    "a lying index": (f"flights-0/{0:020d}.index", lambda path: change_byte(path, 7)),
    "a torn index": (f"flights-0/{0:020d}.timeindex", lambda path: cut(path, 1)),
    "a lying time index": (f"flights-0/{0:020d}.timeindex", lambda path: change_byte(path, 7)),
    "a wrong topic id": (
        "flights-0/partition.metadata",
        lambda path: path.write_text("version: 0\ntopic_id: ?\n"),
    ),
    "garbled leader epochs": ("flights-0/leader-epoch-checkpoint", lambda path: path.write_text("0\n1\n")),
    "leader epochs past the end": (
        "flights-0/leader-epoch-checkpoint",
        lambda path: path.write_text("0\n2\n0 0\n1 9999\n"),
    ),
    "missing leader epochs": ("flights-0/leader-epoch-checkpoint", Path.unlink),
    "a garbled owner": ("meta.properties", lambda path: path.write_text("version=0\n")),
    "a garbled checkpoint": ("recovery-point-offset-checkpoint", lambda path: cut(path, 3)),
    "a recovery point past the end": (
        "recovery-point-offset-checkpoint",
        lambda path: path.write_text("0\n1\nflights 0 9999\n"),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_named_by_its_file(root: Path, name: str) -> None:
    file, damage = DAMAGES[name]
    damage(root / file)
    found = damages(root)
    assert found
    assert any(problem.path == root / file for problem in found), found


def test_a_damaged_snapshot_is_found(root: Path) -> None:
    (snapshot, *_) = sorted(root.glob("flights-0/*.snapshot"), reverse=True)
    change_byte(snapshot, 8)
    assert snapshot in [problem.path for problem in damages(root)]


def test_a_header_that_lies_under_a_good_checksum_is_found_by_a_deep_check(root: Path) -> None:
    path = root / LOG
    data = bytearray(path.read_bytes())
    header = read_header(data, 0)
    write_header(data, 0, header._replace(record_count=header.record_count - 1))
    path.write_bytes(data)
    assert damages(root, deep=False) == []
    (problem,) = damages(root)
    assert (problem.path, problem.position) == (path, 0)


def test_a_timestamp_above_the_largest_is_found(root: Path) -> None:
    path = root / LOG
    data = bytearray(path.read_bytes())
    header = read_header(data, 0)
    write_header(data, 0, header._replace(max_timestamp=header.max_timestamp - 1))
    path.write_bytes(data)
    assert any("is said to be the largest" in problem.message for problem in damages(root))


def test_a_sound_directory_of_a_kafka_without_zookeeper_is_only_noted(root: Path) -> None:
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=cluster\n")
    (problem,) = problems(root)
    assert (problem.path.name, problem.severity) == ("meta.properties", Severity.NOTE)


def test_timestamps_of_before_1970_are_sound(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory = LogDirectory.open(
        SystemDisk(), path, ManualClock(), broker_id=BrokerId(1), cluster_id="cluster"
    )
    directory.load(lambda _: SMALL)
    log = directory.create_log(FLIGHTS, TopicId(UUID(int=1)), SMALL)
    append(log, b"a", timestamps=[-5])
    append(log, b"b", b"c", timestamps=[-(1 << 62), -7])
    directory.checkpoints.store_offsets()
    directory.close()
    assert problems(path) == []


def test_partitions_of_one_topic_with_different_ids_are_found(root: Path) -> None:
    (root / "delays-3").rename(root / "flights-1")
    assert any("topic id" in problem.message for problem in damages(root))


def test_segments_that_overlap_are_found(root: Path) -> None:
    first, second, *_ = sorted(root.glob("flights-0/*.log"))
    second.write_bytes(first.read_bytes())
    assert any(problem.path == second for problem in damages(root))


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (f"flights-0/{0:020d}.log.deleted", "about to be removed"),
        (f"flights-0/{0:020d}.log.cleaned", "compaction"),
        (f"flights-0/{7:020d}.log.cut", "damaged there; it stays"),
        (f"flights-0/{7:020d}.log.cut.2", "damaged there; it stays"),
        (f"flights-0/{99999:020d}.index", "belongs to no log"),
        ("flights-0/leader-epoch-checkpoint.tmp", "being written"),
        ("flights-0/notes.txt", "no file of a partition"),
        ("notes.txt", "no file of a data directory"),
        ("recovery-point-offset-checkpoint.tmp", "being written"),
    ],
)
def test_leftovers_and_foreign_files_are_noted(root: Path, name: str, word: str) -> None:
    (root / name).write_bytes(b"")
    (problem,) = problems(root)
    assert (problem.severity, problem.path) == (Severity.NOTE, root / name)
    assert word in problem.message


def test_a_foreign_directory_is_damage_and_one_being_removed_a_note(root: Path) -> None:
    (root / "photographs").mkdir()
    (root / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    note, damage = sorted(problems(root), key=lambda problem: problem.path)
    assert (note.severity, damage.severity) == (Severity.NOTE, Severity.DAMAGE)


def test_an_unclean_end_is_noted(root: Path) -> None:
    (root / ".kafka_cleanshutdown").unlink()
    (problem,) = problems(root)
    assert "not shut down cleanly" in problem.message


def test_what_is_being_written_is_a_note_while_a_node_runs(root: Path) -> None:
    active = max(root.glob("flights-0/*.log"))
    active.write_bytes(active.read_bytes() + build([b"next"])[:30])
    assert [problem.path for problem in damages(root)] == [active]
    assert damages(root, in_use=True) == []
    assert any("write under way" in problem.message for problem in problems(root, in_use=True))


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is no data directory"):
        problems(tmp_path)
    with pytest.raises(StorageError):
        problems(tmp_path / "absent")


def test_a_lock_is_seen_from_another_process_and_not_taken(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not ReadOnlyDisk().is_locked(path)
    lock = SystemDisk().lock(path)
    script = (
        "import sys; from pathlib import Path; from broker.storage.read_only_disk import ReadOnlyDisk; "
        "sys.exit(ReadOnlyDisk().is_locked(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", script, str(path)]
    try:
        assert subprocess.run(command, check=False, timeout=60).returncode == 1
    finally:
        lock.release()
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
    SystemDisk().lock(path).release()
    assert os.listdir(tmp_path) == [".lock"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_logs_of_old_messages_are_checked_too(tmp_path: Path, magic: int, codec: Codec) -> None:
    sets = [
        build_message_set(
            [Record(offset, NOW_MS + offset, 0, None, b"value", ()) for offset in range(start, start + 5)],
            magic,
            codec,
        )
        for start in range(0, 50, 5)
    ]
    path = tmp_path / "old-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"".join(sets))
    old = TopicPartition("old", 0)
    open_log(SystemDisk(), path, SMALL, ManualClock(), topic_partition=old, clean=False).close()
    assert problems(path) == []
    change_byte(path / f"{0:020d}.log", 30)
    assert [problem.position for problem in damages(path)] == [0]


def test_a_damaged_transaction_index_and_an_unreadable_log_are_found(root: Path) -> None:
    index = root / f"flights-0/{0:020d}.txnindex"
    index.write_bytes(b"torn")
    (problem,) = damages(root)
    assert (problem.path, problem.position) == (index, 0)
    index.unlink()
    (root / LOG).unlink()
    (root / LOG).mkdir()
    assert any(problem.path.parent == root / "flights-0" for problem in problems(root))
