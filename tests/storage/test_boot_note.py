"""When a data root may have lost records: only by the end of the machine, or of the root itself."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from broker.errors import DiskFullError
from broker.storage.boot_note import BootNote
from broker.storage.filenames import BOOT_FILE
from broker.storage.memory_disk import MemoryDisk

PATH = Path("/data") / BOOT_FILE


def started(disk: MemoryDisk, *, was_clean: bool = False) -> BootNote:
    disk.make_directory(PATH.parent)
    disk.sync_directory(Path("/"))
    return BootNote(disk, PATH, was_clean=was_clean)


def test_a_new_root_may_take_the_place_of_another() -> None:
    assert started(MemoryDisk()).may_have_lost()


def test_the_end_of_the_process_loses_nothing() -> None:
    disk = MemoryDisk()
    started(disk).write()
    disk.kill()
    assert not started(disk).may_have_lost()


def test_the_end_of_the_machine_may_lose_records_until_nobody_counts_on_them() -> None:
    disk = MemoryDisk()
    started(disk).write()
    disk.crash()
    assert started(disk).may_have_lost()
    disk.kill()
    after = started(disk)
    assert after.may_have_lost()
    after.write()
    disk.kill()
    assert not started(disk).may_have_lost()


def test_a_clean_end_lost_nothing_whatever_happened_to_the_machine() -> None:
    disk = MemoryDisk()
    started(disk).write()
    disk.crash()
    assert not started(disk, was_clean=True).may_have_lost()


def test_a_root_that_lacks_what_others_count_on_stays_in_doubt_over_clean_ends_until_nobody_does() -> None:
    disk = MemoryDisk()
    new = started(disk)
    assert new.may_be_empty()
    new.write_incomplete()
    disk.kill()
    after = started(disk, was_clean=True)
    assert after.may_have_lost()
    assert after.may_be_empty()
    after.write()
    disk.kill()
    assert not started(disk).may_have_lost()
    assert not started(disk).may_be_empty()


def test_a_root_of_before_there_were_notes_is_not_taken_for_an_empty_one_after_a_clean_end() -> None:
    assert not started(MemoryDisk(), was_clean=True).may_be_empty()


def test_a_start_that_ends_before_its_loss_is_known_to_others_does_not_end_cleanly() -> None:
    disk = MemoryDisk()
    started(disk).write()
    assert started(disk).allows_clean_end(), "the process alone had ended"
    disk.crash()
    after = started(disk)
    assert not after.allows_clean_end()
    after.write()
    assert after.allows_clean_end()


def test_a_new_root_does_not_end_cleanly_before_others_know_of_it() -> None:
    new = started(MemoryDisk())
    assert not new.allows_clean_end()
    new.write_incomplete()
    assert new.allows_clean_end(), "the note says what it lacks"


def test_what_ended_cleanly_ends_so_again_before_anything_is_noted() -> None:
    disk = MemoryDisk()
    started(disk).write()
    disk.crash()
    assert started(disk, was_clean=True).allows_clean_end()


def test_a_cut_is_known_by_partition_to_its_start_and_puts_everything_in_doubt_for_the_next() -> None:
    disk = MemoryDisk()
    started(disk).write()
    cutting = started(disk)
    cutting.note_cut()
    assert not cutting.may_have_lost()
    assert not cutting.allows_clean_end()
    disk.crash()
    for was_clean in (False, True):
        after = started(disk, was_clean=was_clean)
        assert after.may_have_lost()
        assert not after.may_be_empty()
    after.note_cut()
    assert after.may_have_lost(), "more was in doubt before"
    after.write()
    assert not started(disk).may_have_lost()


def test_a_cut_on_a_full_disk_is_known_to_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    started(disk).write()
    cutting = started(disk)
    with monkeypatch.context() as full:
        full.setattr(disk, "write_file", mock.Mock(side_effect=DiskFullError("no room")))
        cutting.note_cut()
    assert not cutting.allows_clean_end()
