"""What a node notes of its session, and which sessions a start ends by such notes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.registration import register_broker
from broker.config import LoadedConfig, NodeConfig
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import SessionKey
from broker.errors import CoordinationError
from broker.live_config import LiveConfig
from broker.presence import Presence
from broker.session_notes import SessionNote, SessionNotes
from broker.storage.filenames import SESSION_FILE
from broker.storage.log_config import LogConfig
from broker.storage.log_directories import LogDirectories
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId
from tests.cluster.scenes import broker_znode
from tests.storage.samples import ManualClock

ZOOKEEPER, CLUSTER = "zookeeper:2181/jfk", "jfk-cluster-id"
BROKER = BrokerId(1)
FIRST, SECOND = Path("/data/first"), Path("/data/second")
KEY = SessionKey(session_id=-7, password=b"0123456789abcdef")
OTHER_KEY = SessionKey(session_id=8, password=b"fedcba9876543210")


def opened(disk: MemoryDisk, *roots: Path) -> LogDirectories:
    directories = LogDirectories(disk, ManualClock(), recovery_threads=1, on_failure=lambda root: None)
    directories.open(roots or (FIRST, SECOND), lambda _: LogConfig(), broker_id=BROKER, cluster_id=CLUSTER)
    return directories


def notes_in(
    directories: LogDirectories, *, zookeeper: str = ZOOKEEPER, cluster_id: str = CLUSTER
) -> SessionNotes:
    return SessionNotes(directories, zookeeper=zookeeper, cluster_id=cluster_id)


def killed_with_note(*roots: Path) -> MemoryDisk:
    """The disk of a node that was killed while it had the session of KEY."""
    disk = MemoryDisk()
    notes_in(opened(disk, *roots)).write(KEY)
    disk.kill()
    return disk


keys = st.builds(
    SessionKey, session_id=st.integers(min_value=-(2**63), max_value=2**63 - 1), password=st.binary()
)


@given(key=keys, zookeeper=st.text(), cluster_id=st.text(), locks=st.frozensets(st.text()))
def test_a_note_is_read_as_written(
    key: SessionKey, zookeeper: str, cluster_id: str, locks: frozenset[str]
) -> None:
    note = SessionNote(key=key, zookeeper=zookeeper, cluster_id=cluster_id, locks=locks)
    assert SessionNote.decode(note.encode(), "note") == note


def test_a_killed_process_leaves_the_session_that_it_had_last() -> None:
    disk = MemoryDisk()
    notes = notes_in(opened(disk))
    notes.write(OTHER_KEY)
    notes.write(KEY)
    disk.kill()
    assert notes_in(opened(disk)).find_former() == [KEY]


def test_a_clean_stop_leaves_none() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    notes = notes_in(directories)
    notes.write(KEY)
    notes.remove()
    directories.close()
    assert notes_in(opened(disk)).find_former() == []


@pytest.mark.parametrize(
    ("zookeeper", "cluster_id"), [("zookeeper:2181/lga", CLUSTER), (ZOOKEEPER, "another-cluster")]
)
def test_a_session_of_elsewhere_is_left_alone(zookeeper: str, cluster_id: str) -> None:
    directories = opened(killed_with_note())
    assert notes_in(directories, zookeeper=zookeeper, cluster_id=cluster_id).find_former() == []


def test_a_session_is_left_alone_while_its_process_may_hold_another_lock() -> None:
    disk = killed_with_note(FIRST, SECOND)
    assert notes_in(opened(disk, FIRST)).find_former() == []


def test_a_copied_directory_names_the_locks_of_the_original() -> None:
    original, copy = killed_with_note(FIRST), MemoryDisk()
    directories = opened(copy, FIRST)
    copy.write_file(FIRST / SESSION_FILE, original.read_file(FIRST / SESSION_FILE))
    assert notes_in(directories).find_former() == []


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version":2}',
        b'{"version":1,"password":"zz"}',
        b'{"version":1,"password":"00","session_id":9223372036854775808}',
        b'{"version":1,"password":"00","session_id":1,"zookeeper":"z","cluster_id":"c","locks":7}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_note_is_told_and_left(damaged: bytes) -> None:
    disk = killed_with_note()
    disk.write_file(FIRST / SESSION_FILE, damaged)
    with pytest.raises(CoordinationError, match="note"):
        SessionNote.decode(damaged, "note")
    with capture_logs() as logs:
        assert notes_in(opened(disk)).find_former() == []
    (event,) = [log for log in logs if log["event"] == "session_note_ignored"]
    assert str(FIRST / SESSION_FILE) in event["reason"]


def test_a_note_without_locks_proves_nothing() -> None:
    disk = killed_with_note()
    note = SessionNote(key=KEY, zookeeper=ZOOKEEPER, cluster_id=CLUSTER, locks=frozenset())
    disk.write_file(FIRST / SESSION_FILE, note.encode())
    assert notes_in(opened(disk)).find_former() == []


def test_there_is_one_note_whichever_root_was_first_before() -> None:
    disk = killed_with_note(SECOND)
    notes = notes_in(opened(disk, FIRST, SECOND))
    assert notes.find_former() == [KEY]
    notes.write(OTHER_KEY)
    assert disk.exists(FIRST / SESSION_FILE)
    assert not disk.exists(SECOND / SESSION_FILE)
    assert notes.find_former() == [OTHER_KEY]


def test_a_full_disk_costs_the_note_only() -> None:
    disk = MemoryDisk()
    directories = opened(disk, FIRST)
    disk.space_left = 0
    with capture_logs() as logs:
        notes_in(directories).write(KEY)
    assert "session_note_not_written" in [log["event"] for log in logs]
    assert notes_in(directories).find_former() == []
    assert directories.live


# Presence


CONFIG = NodeConfig(
    broker_id=1,
    listeners=("PLAINTEXT://127.0.0.1:9001",),
    zookeeper_connect=ZOOKEEPER,
    zookeeper_session_timeout_ms=60_000,
)


def presence_of(session: MemorySession) -> Presence:
    live = LiveConfig(LoadedConfig(node=CONFIG, given=frozenset()), EntityConfigs(session))
    return Presence(live, session, ManualClock(), [])


def test_a_start_after_a_kill_registers_without_a_wait() -> None:
    async def scenario() -> None:
        tree, disk = MemoryTree(), MemoryDisk()
        killed = MemorySession(tree)  # lives on, and nobody answers for it
        await killed.start(timeout_ms=1_000)
        before = await register_broker(killed, BROKER, broker_znode(1), session_timeout_ms=100)
        assert killed.session_key is not None
        notes_in(opened(disk)).write(killed.session_key)
        disk.kill()
        presence = presence_of(MemorySession(tree))
        async with asyncio.timeout(20), presence.connected():
            async with presence.noted_in(opened(disk), CLUSTER):
                assert await presence.register() > before
                assert disk.exists(FIRST / SESSION_FILE)
            assert not disk.exists(FIRST / SESSION_FILE)
        assert tree.get(paths.broker(BROKER)) is None

    asyncio.run(scenario())


def test_a_new_session_is_noted_before_it_registers() -> None:
    async def scenario() -> None:
        tree, disk = MemoryTree(), MemoryDisk()
        session = MemorySession(tree)
        presence = presence_of(session)
        directories = opened(disk)
        async with presence.connected(), presence.noted_in(directories, CLUSTER):
            await presence.register()
            before = session.session_key
            assert before is not None
            registered = asyncio.Event()
            keeping = asyncio.create_task(presence.keep(lambda epoch: registered.set()))
            session.expire()
            await registered.wait()
            keeping.cancel()
            assert notes_in(directories).find_former() == [session.session_key]
            assert session.session_key != before

    asyncio.run(scenario())
