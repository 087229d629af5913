"""Leader epochs: where each began, what is asked of them, and what cuts leave."""

from __future__ import annotations

import pytest

from broker.errors import StorageError
from broker.storage.checkpoints import EpochStart
from broker.storage.leader_epochs import LeaderEpochs
from tests.storage.samples import DiskAt


def epochs(place: DiskAt, *entries: tuple[int, int]) -> LeaderEpochs:
    found = LeaderEpochs(place.disk, place.path / "leader-epoch-checkpoint")
    for entry in entries:
        found.assign(*entry)
    return found


def test_entries_are_stored_as_they_are_made(place: DiskAt) -> None:
    epochs(place, (0, 0), (2, 10), (2, 15), (5, 30))
    again = epochs(place)
    again.load()
    assert again.entries == ((0, 0), (2, 10), (5, 30))
    assert again.latest == 5


def test_an_entry_that_contradicts_goes(place: DiskAt) -> None:
    found = epochs(place, (0, 0), (2, 10), (3, 20))
    found.assign(4, 15)
    assert found.entries == ((0, 0), (2, 10), (4, 15))
    found.assign(5, 15)
    assert found.entries == ((0, 0), (2, 10), (5, 15))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 10)),
        (2, (1, 10)),
        (3, (3, 20)),
        (4, (4, 99)),
        (5, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_began(
    place: DiskAt, asked: int, answer: tuple[int, int]
) -> None:
    assert epochs(place, (1, 5), (3, 10), (4, 20)).end_offset_for(asked, 99) == answer


def test_no_epoch_ends_beyond_the_end_of_a_log_that_failed_to_take_the_next_ones(place: DiskAt) -> None:
    found = epochs(place, (1, 5), (3, 10), (4, 20))
    assert [found.end_offset_for(epoch, 10) for epoch in (1, 3, 4)] == [(1, 10), (3, 10), (4, 10)]


def test_no_epochs_know_no_end(place: DiskAt) -> None:
    assert epochs(place).end_offset_for(0, 99) == (-1, -1)


def test_the_epoch_of_an_offset(place: DiskAt) -> None:
    found = epochs(place, (1, 5), (3, 10))
    assert [found.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_a_cut_end_forgets_what_began_there(place: DiskAt) -> None:
    found = epochs(place, (1, 5), (3, 10), (4, 20))
    found.cut_end(21)
    assert found.latest == 4
    found.cut_end(10)
    assert found.entries == ((1, 5),)
    found.clear()
    assert found.latest == -1


def test_a_cut_start_keeps_the_epoch_that_holds_it(place: DiskAt) -> None:
    found = epochs(place, (1, 5), (3, 10), (4, 20))
    found.cut_start(15)
    assert list(found.entries) == [EpochStart(3, 15), EpochStart(4, 20)]
    found.cut_start(20)
    assert list(found.entries) == [EpochStart(4, 20)]
    found.cut_start(30)
    assert list(found.entries) == [EpochStart(4, 30)]


def test_a_malformed_file_is_named(place: DiskAt) -> None:
    place.disk.write_file(place.path / "leader-epoch-checkpoint", b"0\n1\nzero 0\n")
    with pytest.raises(StorageError, match="leader-epoch-checkpoint:3"):
        epochs(place).load()


def test_changes_that_lead_back_are_not_written_but_synced_all_the_same(place: DiskAt) -> None:
    epochs(place, (0, 0), (2, 10))
    found = epochs(place)
    found.load()
    path = place.path / "leader-epoch-checkpoint"
    place.disk.remove(path)
    with found.gathered():
        found.cut_end(0)
        found.assign(0, 0)
        found.assign(2, 10)
    assert not place.disk.exists(path)
    assert found.dirty


def test_gathered_changes_are_written_at_their_end(place: DiskAt) -> None:
    found = epochs(place, (0, 0))
    with found.gathered():
        found.assign(1, 5)
        found.assign(2, 7)
        stored = epochs(place)
        stored.load()
        assert stored.entries == ((0, 0),)
    stored = epochs(place)
    stored.load()
    assert stored.entries == found.entries == ((0, 0), (1, 5), (2, 7))
