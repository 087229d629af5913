"""What people read of a group that is switched over."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.failover.group_place import GroupPlace, Jumped, Missed, carried_lines, following, past_tails
from mirrormaker.failover.lost_copies import Lost, past_lost
from mirrormaker.failover.tail import Tail


def place(standing: GroupStanding, group: str = "billing", partition: int = 0) -> GroupPlace:
    return GroupPlace(
        route="forth",
        group=group,
        source=TopicPartition("orders", partition),
        at=3,
        to=TopicPartition("orders", partition),
        continues_at=5,
        standing=standing.value,
        is_exact=standing is GroupStanding.CARRIED,
        unread=0,
        again=0,
    )


def test_groups_that_are_not_carried_are_told_with_the_reason_and_not_counted() -> None:
    used = place(GroupStanding.IN_USE)
    assert used.line() == (
        "group billing: orders-0 at 3 is not carried, it has members there: it has offset 5"
    )
    places = [used, place(GroupStanding.CARRIED, partition=1), place(GroupStanding.AHEAD, "other")]
    places += [place(GroupStanding.OWN, "shop"), place(GroupStanding.REFUSED, "shop", 1)]
    assert carried_lines(places) == [
        "1 groups are carried",
        "group billing is not carried in 1 partitions: it has members there",
        "group shop is not carried in 2 partitions: it went on there by itself, its position is not taken"
        " there",
    ]


@pytest.mark.parametrize(
    ("continues_at", "wanted"),
    [
        (None, None),
        (2, None),
        (3, Jumped(first=2, last=2, records=1)),
        (9, Jumped(first=2, last=8, records=3)),
        (20, Jumped(first=2, last=9, records=3)),
    ],
)
def test_what_only_the_other_side_has_and_a_group_stands_behind_is_told(
    continues_at: int | None, wanted: Jumped | None
) -> None:
    tail = Tail(topic="orders", partition=0, first=2, last=9, records=3, bytes=1, first_ms=1, last_ms=1)
    places = [
        replace(place(GroupStanding.OWN, partition=number), continues_at=continues_at) for number in (0, 1)
    ]
    (found, other) = past_tails(places, [tail])
    assert (found.jumped, other.jumped) == (wanted, None)
    assert found.describe()["jumped"] == (None if wanted is None else asdict(wanted))


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        (0, Missed(first=2, last=8, records=5)),
        (4, Missed(first=6, last=8, records=3)),
        (8, Missed(first=8, last=8, records=1)),
        (9, None),
    ],
)
def test_what_the_other_side_has_lost_and_a_group_has_not_read_here_is_told(
    at: int, wanted: Missed | None
) -> None:
    lost = Lost(source=TopicPartition("orders", 0), stretches=(Range(2, 4), Range(6, 9)))
    assert lost.line() == "orders-0: 5 records, offsets 2 to 8"
    places = [replace(place(GroupStanding.CARRIED, partition=number), at=at) for number in (0, 1)]
    (found, other) = past_lost(places, [lost])
    assert (found.missed, other.missed) == (wanted, None)
    assert found.describe()["missed"] == (None if wanted is None else asdict(wanted))
    said = "" if wanted is None else f"; {wanted.text}"
    assert found.line() == f"group billing: orders-0 at {at} goes on at offset 5{said}"


@pytest.mark.parametrize(
    ("standing", "follows"),
    [(GroupStanding.UNKNOWN, True), (GroupStanding.AHEAD, True), (GroupStanding.OWN, False)],
)
def test_who_has_read_what_is_still_to_be_copied_goes_on_behind_that(
    standing: GroupStanding, follows: bool
) -> None:
    left = place(standing)
    (told, whole) = following([left, place(standing, partition=1)], {left.source: 1}, {})
    assert (told.follows, whole.follows) == (follows, False)
    assert told.continues_at == (None if follows else 5)


def test_who_has_read_what_is_still_to_be_copied_goes_on_where_what_only_that_side_has_begins() -> None:
    """What is copied comes behind it, and is read again. What came by the other way is not to be copied."""
    ahead = replace(place(GroupStanding.AHEAD), unread=3, again=1)
    own = place(GroupStanding.OWN)
    (told, left) = following([ahead, own], {ahead.source: 1}, {ahead.to: 5})
    assert left == own
    assert told.line() == (
        "group billing: orders-0 at 3, 2 records ahead of the copy goes on at offset 5, reads up to 3 records"
        " again (where what only that side has begins)"
    )


def test_what_a_group_does_not_read_is_said() -> None:
    jumped = Jumped(first=2, last=9, records=3)
    said = (
        "; it does not read what only that side had at offsets 2 to 9 (3 records at the most), unless it has"
        " already"
    )
    assert replace(place(GroupStanding.OWN), jumped=jumped).line() == (
        f"group billing: orders-0 at 3 is not carried, it went on there by itself: it has offset 5{said}"
    )
    assert replace(place(GroupStanding.CARRIED), jumped=jumped).line() == (
        f"group billing: orders-0 at 3 goes on at offset 5{said}"
    )


@pytest.mark.parametrize(
    ("standing", "is_exact", "said"),
    [
        (GroupStanding.CARRIED, True, ""),
        (
            GroupStanding.CAREFUL,
            False,
            " (where it misses nothing: what it has had there no ledger tells exactly)",
        ),
        (GroupStanding.UNKNOWN, False, " (nothing was copied yet)"),
    ],
)
def test_how_a_group_goes_on_is_said_where_it_is_not_exact(
    standing: GroupStanding, is_exact: bool, said: str
) -> None:
    group = place(standing)
    assert group.line() == f"group billing: orders-0 at 3 goes on at offset 5{said}"
    assert (group.describe()["standing"], group.is_exact) == (standing.value, is_exact)
