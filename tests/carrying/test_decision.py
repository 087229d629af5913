"""Where a group is moved, and when it is left alone."""

from __future__ import annotations

import pytest

from mirrormaker.carrying.decision import Decision, GroupStanding, decide
from mirrormaker.ledger.group_mark import GroupMark
from mirrormaker.ledger.lane_map import NOTHING_KNOWN, Standing, Translation

EXACT = Translation(offset=40, standing=Standing.COPIED)
MARK = GroupMark(source=90, to=30, before=20)


@pytest.mark.parametrize(
    ("translation", "committed", "mark", "expected"),
    [
        (EXACT, None, None, Decision(standing=GroupStanding.CARRIED, to=40)),
        (EXACT, 40, None, Decision(standing=GroupStanding.CARRIED)),
        (EXACT, 30, MARK, Decision(standing=GroupStanding.CARRIED, to=40)),
        (EXACT, 20, MARK, Decision(standing=GroupStanding.CARRIED, to=40)),
        (EXACT, 35, MARK, Decision(standing=GroupStanding.CARRIED, to=40)),
        (EXACT, 45, MARK, Decision(standing=GroupStanding.OWN)),
        (EXACT, 45, None, Decision(standing=GroupStanding.OWN)),
        (EXACT, 35, None, Decision(standing=GroupStanding.CARRIED, to=40)),
        (EXACT, 35, GroupMark(source=100, to=40, before=30), Decision(standing=GroupStanding.OWN)),
        (NOTHING_KNOWN, 20, MARK, Decision(standing=GroupStanding.UNKNOWN)),
        (NOTHING_KNOWN, None, None, Decision(standing=GroupStanding.UNKNOWN, to=5)),
        (
            Translation(offset=None, standing=Standing.BEFORE, is_exact=False),
            None,
            None,
            Decision(standing=GroupStanding.BEHIND, to=5),
        ),
        (
            Translation(offset=33, standing=Standing.BEYOND, is_exact=False),
            30,
            MARK,
            Decision(standing=GroupStanding.AHEAD, to=33),
        ),
        (
            Translation(offset=33, standing=Standing.COPIED, is_exact=False),
            30,
            MARK,
            Decision(standing=GroupStanding.CAREFUL, to=33),
        ),
        (
            Translation(offset=2, standing=Standing.COPIED),
            None,
            None,
            Decision(standing=GroupStanding.CARRIED, to=5),
        ),
    ],
)
def test_a_group_is_moved_as_long_as_nobody_else_moves_it(
    translation: Translation, committed: int | None, mark: GroupMark | None, expected: Decision
) -> None:
    assert decide(100, translation, 5, committed, mark, follows_rewinds=True) == expected


def test_a_group_that_goes_back_is_followed_only_if_that_is_wished() -> None:
    mark = GroupMark(source=200, to=80, before=70)
    back = Decision(standing=GroupStanding.CARRIED, to=40)
    assert decide(100, EXACT, 0, 80, mark, follows_rewinds=True) == back
    stays = Decision(standing=GroupStanding.REWOUND)
    assert decide(100, EXACT, 0, 80, mark, follows_rewinds=False) == stays
    assert decide(200, EXACT, 0, 80, mark, follows_rewinds=False) == back


def test_a_group_is_not_moved_where_it_works_by_what_was_carried_from_there() -> None:
    own, mark = Decision(standing=GroupStanding.OWN), GroupMark(source=90, to=30, before=20)
    assert decide(100, EXACT, 0, 25, mark, follows_rewinds=True, is_given=True) == own
    assert decide(100, EXACT, 0, 30, mark, follows_rewinds=True, is_given=True) == own
    assert (
        decide(80, EXACT, 0, 50, GroupMark(source=90, to=50, before=2), follows_rewinds=True, is_given=True)
        == own
    )
    carried = Decision(standing=GroupStanding.CARRIED)
    assert decide(100, EXACT, 0, 40, None, follows_rewinds=True, is_given=True) == carried
    first = Decision(standing=GroupStanding.CARRIED, to=40)
    assert decide(100, EXACT, 0, None, None, follows_rewinds=True, is_given=True) == first


@pytest.mark.parametrize(
    ("committed", "position", "standing"),
    [
        (39, 100, GroupStanding.CARRIED),
        (41, 100, GroupStanding.OWN),
        (38, 100, GroupStanding.OWN),
        (39, 99, GroupStanding.OWN),
    ],
)
def test_a_group_that_stands_where_it_was_brought_back_from_did_not_go_on_there_by_itself(
    committed: int, position: int, standing: GroupStanding
) -> None:
    """Before the end of a transaction, which the ledger tells nothing of."""
    mark = GroupMark(source=100, to=41 if committed == 41 else 39, before=None)
    told = decide(position, EXACT, 0, committed, mark, follows_rewinds=True, is_given=True)
    assert told == Decision(standing=standing)


def test_a_group_that_stands_where_it_was_moved_stays_when_the_ledger_forgets() -> None:
    """The source has deleted what lies before its position, and the ledger the pages of that."""
    forgotten = Translation(offset=None, standing=Standing.BEFORE, is_exact=False)
    mark = GroupMark(source=100, to=80, before=70)
    stays = Decision(standing=GroupStanding.CAREFUL)
    assert decide(100, forgotten, 0, 80, mark, follows_rewinds=True) == stays
    assert decide(110, forgotten, 0, 80, mark, follows_rewinds=True) == stays
    assert decide(90, forgotten, 0, 80, mark, follows_rewinds=True).to == 0
    assert decide(100, forgotten, 95, 80, mark, follows_rewinds=True).to == 95


def test_a_group_goes_on_at_what_never_came_to_its_source_also_where_it_was_moved_past_that() -> None:
    held = Decision(standing=GroupStanding.HELD, to=35)
    forgotten = Translation(offset=38, standing=Standing.BEYOND, is_exact=False)
    for translation in (EXACT, forgotten):
        for committed, mark in ((None, None), (30, MARK), (40, GroupMark(source=100, to=40, before=30))):
            assert decide(100, translation, 5, committed, mark, follows_rewinds=False, unread=35) == held
        told = decide(100, translation, 5, 35, MARK, follows_rewinds=False, unread=35)
        assert told == Decision(standing=GroupStanding.HELD)
    assert decide(100, EXACT, 5, None, None, follows_rewinds=False, unread=40).to == 40
    assert decide(100, EXACT, 5, 45, MARK, follows_rewinds=False, unread=35).to is None, (
        "it read there itself"
    )
