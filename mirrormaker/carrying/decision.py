"""Where a group should stand at the other side, and whether the mirror may move it there. Pure.

The mirror moves a group only as long as nobody else does (see `GroupMark`): one that goes on at the
destination by itself is left alone there, unless its position at the source moves on and past it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mirrormaker.ledger.group_mark import GroupMark
from mirrormaker.ledger.lane_map import Standing, Translation


class GroupStanding(Enum):
    """How a group does in one partition."""

    CARRIED = "carried"
    """It stands at the destination where it does at the source."""
    AHEAD = "ahead"
    """It has read at the source what was not copied yet; it stands at the end of what was."""
    BEHIND = "behind"
    """What it reads next was never copied: it stands at the first record there is."""
    CAREFUL = "careful"
    """What lies before its position is not known exactly: it stands where it certainly misses nothing."""
    UNKNOWN = "unknown"
    """Nothing was copied yet: it stands at the first record of the destination, where what comes next will be
    behind it.
    """
    HELD = "held"
    """Only the destination has records that it has not read: it stands at the first of them."""
    REWOUND = "rewound"
    """It went back at the source, and is not to at the destination."""
    OWN = "own"
    """It went on at the destination by itself."""
    IN_USE = "in_use"
    """It has members at the destination: nobody else can move it."""
    REFUSED = "refused"
    """The destination does not take its position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """About one partition of a group."""

    standing: GroupStanding
    to: int | None = None
    """Commit this at the destination; None: leave it as it is."""


_STANDINGS = {
    Standing.COPIED: GroupStanding.CARRIED,
    Standing.BETWEEN: GroupStanding.CARRIED,
    Standing.END: GroupStanding.CARRIED,
    Standing.BEYOND: GroupStanding.AHEAD,
    Standing.BEFORE: GroupStanding.BEHIND,
    Standing.UNRECORDED: GroupStanding.CAREFUL,
}


def decide(
    position: int,
    translation: Translation,
    log_start: int,
    committed: int | None,
    mark: GroupMark | None,
    *,
    follows_rewinds: bool,
    is_given: bool = False,
    unread: int | None = None,
) -> Decision:
    """`position`: the group's at the source; `committed`: that at the destination, whose log begins at
    `log_start`; `mark`: how the mirror moved it last. `is_given`: its position at the source is the mirror's
    doing, too: it works at the destination, and what it does there counts. `unread`: the first record of the
    destination that surely never came to the source.

    Where it was brought back from, and has not moved since, may lie before its place by the ledger: between
    the two is nothing that either way has copied, such as the end of a transaction.
    """
    if translation.offset is None and translation.standing is not Standing.BEFORE:
        return Decision(standing=GroupStanding.UNKNOWN, to=log_start if committed is None else None)
    to = max(log_start, translation.offset or 0)
    standing = _STANDINGS[translation.standing]
    if standing is GroupStanding.CARRIED and not translation.is_exact:
        standing = GroupStanding.CAREFUL
    is_sure = translation.is_exact
    if unread is not None and unread < to:
        to, standing, is_sure = max(log_start, unread), GroupStanding.HELD, True
    if committed == to:
        return Decision(standing=standing)
    if committed is None:
        return Decision(standing=standing, to=to)
    if is_given:
        is_where_it_came_from = mark is not None and (mark.source, mark.to) == (position, committed)
        return Decision(standing=standing if is_where_it_came_from and committed < to else GroupStanding.OWN)
    if mark is None or not mark.fits(committed):
        has_moved = mark is None or position > mark.source
        if to > committed and has_moved:
            return Decision(standing=standing, to=to)
        return Decision(standing=GroupStanding.OWN)
    if to < committed and position < mark.source and not follows_rewinds:
        return Decision(standing=GroupStanding.REWOUND)
    if to < committed == mark.to and position >= mark.source and not is_sure:
        return Decision(standing=GroupStanding.CAREFUL)  # by what the ledger does not know any more
    return Decision(standing=standing, to=to)
