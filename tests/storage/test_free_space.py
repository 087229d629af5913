"""When clients may write to a log directory, and when the file system is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker.errors import DiskFailedError, DiskFullError
from broker.storage.disk import Space
from broker.storage.free_space import RESUME_BYTES_MIN, FreeSpace
from broker.storage.memory_disk import MemoryDisk
from tests.storage.conftest import memory_place
from tests.storage.samples import SMALL, append, contents, numbered

MINIMUM = 100 << 20


@dataclass
class FileSystem:
    """What a file system says of itself, and how often it was asked."""

    usable: int
    asked: int = 0
    space: FreeSpace = field(init=False)

    def __post_init__(self) -> None:
        self.space = FreeSpace("/data", self.measure, minimum=MINIMUM)

    def measure(self) -> Space:
        self.asked += 1
        return Space(10 * MINIMUM, self.usable)

    def look(self) -> None:
        self.space.measured(self.measure())


def test_the_file_system_is_asked_only_when_what_was_found_is_used_up() -> None:
    system = FileSystem(MINIMUM + 1000)
    assert all(system.space.admits(100) for _ in range(10))
    assert system.asked == 1
    system.usable = MINIMUM + 500  # others freed some, or what was written took less
    assert system.space.admits(100)
    assert system.asked == 2


def test_clients_are_refused_before_the_minimum_is_touched() -> None:
    system = FileSystem(MINIMUM + 1000)
    assert not system.space.admits(1001)
    assert system.space.is_full
    assert not system.space.admits(1)
    assert system.space.refused_count == 2
    assert system.asked == 1


def test_a_full_directory_resumes_when_there_is_more_than_the_minimum() -> None:
    system = FileSystem(MINIMUM - 1)
    system.look()
    assert system.space.is_full
    for usable in (MINIMUM, MINIMUM + MINIMUM // 10 - 1):
        system.usable = usable
        system.look()
        assert not system.space.admits(1)
    system.usable += 1
    system.look()
    assert system.space.admits(1000)


def test_a_write_that_finds_no_room_makes_the_directory_full() -> None:
    system = FileSystem(10 * MINIMUM)
    assert system.space.admits(1)
    system.space.ran_out()
    assert not system.space.admits(1)
    system.look()
    assert system.space.admits(1)


def test_without_a_minimum_clients_write_as_long_as_it_fits() -> None:
    space = FreeSpace("/data", lambda: Space(1000, 1000), minimum=0)
    assert space.admits(1000)
    assert not space.admits(1001)
    space.measured(Space(1 << 30, RESUME_BYTES_MIN - 1))
    assert space.is_full
    space.measured(Space(1 << 30, RESUME_BYTES_MIN))
    assert not space.is_full


def test_a_file_system_that_does_not_answer_refuses_nothing() -> None:
    def fails() -> Space:
        raise DiskFailedError("gone")

    assert FreeSpace("/data", fails, minimum=MINIMUM).admits(1)


@pytest.mark.parametrize("room", range(0, 420, 7))
def test_an_append_that_finds_no_room_leaves_nothing_and_the_log_goes_on(room: int) -> None:
    place = memory_place()
    disk = place.disk
    assert isinstance(disk, MemoryDisk)
    log = place.log(SMALL)
    stored = []
    disk.space_left = 900 + room
    for value in numbered(30, size=20):
        try:
            append(log, value)
        except DiskFullError:
            continue
        stored.append(value)
    assert 0 < len(stored) < 30
    assert contents(log) == list(enumerate(stored))
    disk.space_left = None
    for value in numbered(30, size=20):
        append(log, value)
    expected = list(enumerate([*stored, *numbered(30, size=20)]))
    assert contents(log) == expected
    log.flush()
    disk.crash()
    assert contents(place.log(SMALL)) == expected


@pytest.mark.parametrize(
    ("total", "kept_free"), [(64 << 20, (64 << 20) // 20), (2000 << 20, 100 << 20), (1 << 40, 100 << 20)]
)
def test_a_small_file_system_keeps_a_part_free_unless_told_how_much(total: int, kept_free: int) -> None:
    def admitted_of(usable: int) -> bool:
        return FreeSpace("/data", lambda: Space(total, usable), minimum=None).admits(1)

    assert admitted_of(kept_free + 1)
    assert not admitted_of(kept_free)
