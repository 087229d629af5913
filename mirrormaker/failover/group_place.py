"""Where a consumer group goes on at the other side, and how that is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.types import TopicPartition
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.failover.tail import Tail

AS_CARRIED = "carried_last"
"""It goes on where it was carried last: how far it had come since nobody can tell."""
_STAYS = {
    GroupStanding.IN_USE.value: "it has members there",
    GroupStanding.REFUSED.value: "its position is not taken there",
    GroupStanding.OWN.value: "it went on there by itself",
    GroupStanding.REWOUND.value: "it went back, and is not to there",
}
"""Why groups are left where they are."""
_SAID = {
    GroupStanding.UNKNOWN.value: "nothing was copied yet",
    GroupStanding.CAREFUL.value: "where it misses nothing: what it has had there no ledger tells exactly",
    GroupStanding.HELD.value: "where what only that side has begins",
    AS_CARRIED: "where it was carried last",
}
"""Standings that people would not read as they are meant."""


_BEFORE_THE_COPY = frozenset({GroupStanding.UNKNOWN.value, GroupStanding.AHEAD.value})
"""Standings of groups that have read here what is still to be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jumped:
    """Records that only the side where the group goes on has, or had, and that lie before that."""

    first: int
    """Offset of the first of them."""
    last: int
    """Offset before which, or at which, the last of them is."""
    records: int
    """At the most, where the group goes on among them."""

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"it does not read what only that side had at offsets {self.first} to {self.last}"
            f" ({self.records:,} records at the most), unless it has already"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Records that it has not read here, and that are not there any more."""

    first: int
    """Offset here of the first of them."""
    last: int
    records: int
    """At the most."""

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"it misses what it has not read here at offsets {self.first} to {self.last}"
            f" ({self.records:,} records at the most), which is not there any more"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """One partition of a group."""

    route: str
    group: str
    source: TopicPartition
    at: int
    to: TopicPartition
    continues_at: int | None
    """At the other side; None where it has no position there, and gets none."""
    standing: str
    is_exact: bool
    unread: int
    """Records that the route has not copied yet and that the group has read: see `GroupStanding.AHEAD`."""
    again: int | None
    """Records that it has read and finds there once more, at the most; None: nobody knows where it begins."""
    jumped: Jumped | None = None
    """What it does not read there."""
    missed: Missed | None = None
    """What it cannot read there."""
    follows: bool = False
    """It goes on with what it reads next here, once that, or what lies before it, has been copied: where that
    will be nobody knows before.
    """

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "route": self.route,
            "group": self.group,
            "topic": self.source.topic,
            "partition": self.source.partition,
            "at": self.at,
            "to_topic": self.to.topic,
            "continues_at": self.continues_at,
            "standing": self.standing,
            "exact": self.is_exact,
            "ahead": self.unread,
            "read_again": self.again,
            "follows_copy": self.follows,
            "jumped": None if self.jumped is None else asdict(self.jumped),
            "missed": None if self.missed is None else asdict(self.missed),
        }

    @property
    def is_carried(self) -> bool:
        """Whether it goes on there with what it has not read here, as far as that is known."""
        return self.standing not in _STAYS

    def line(self) -> str:
        """For people."""
        at = "its first record" if self.continues_at is None else f"offset {self.continues_at}"
        unread = "".join(f"; {each.text}" for each in (self.jumped, self.missed) if each is not None)
        if not self.is_carried:
            at = "no position" if self.continues_at is None else at
            why = _STAYS[self.standing]
            said = f"is not carried, {why}: it has {at}"
            return f"group {self.group}: {self.source} at {self.at} {said}{unread}"
        if self.follows:
            return (
                f"group {self.group}: {self.source} at {self.at} goes on there with what it reads next here,"
                f" once what is missing is copied{unread}"
            )
        ahead = f", {self.unread:,} records ahead of the copy" if self.unread else ""
        again = f", reads up to {self.again:,} records again" if self.again else ""
        exactness = "" if self.is_exact else f" ({_SAID.get(self.standing, self.standing)})"
        return (
            f"group {self.group}: {self.source} at {self.at}{ahead} goes on at {at}{again}{exactness}{unread}"
        )


def following(
    places: Iterable[GroupPlace],
    missing: Mapping[TopicPartition, int],
    unread: Mapping[TopicPartition, int],
) -> tuple[GroupPlace, ...]:
    """The places as they will be where all is copied first. `missing`: by partition, from where something is.
    `unread`: by partition, the first record there that never came here: what is copied comes behind it.
    """
    return tuple(
        _following(place, missing[place.source], unread.get(place.to))
        if place.source in missing and place.standing in _BEFORE_THE_COPY
        else place
        for place in places
    )


def _following(place: GroupPlace, copied_to: int, unread: int | None) -> GroupPlace:
    if unread is None:
        return replace(place, follows=True, continues_at=None, again=None)
    ahead = max(place.at - copied_to, 0)
    return replace(
        place,
        standing=GroupStanding.HELD.value,
        is_exact=False,
        continues_at=unread,
        unread=ahead,
        again=(place.again or 0) + ahead,
    )


def past_tails(places: Iterable[GroupPlace], tails: Collection[Tail]) -> tuple[GroupPlace, ...]:
    """The places, and what of `tails`, of the side where groups go on, lies before each."""
    found = {tail.source: tail for tail in tails}
    return tuple(replace(place, jumped=_jumped(place, found.get(place.to))) for place in places)


def _jumped(place: GroupPlace, tail: Tail | None) -> Jumped | None:
    at = place.continues_at
    if tail is None or at is None or at <= tail.first:
        return None
    last = min(tail.last, at - 1)
    return Jumped(first=tail.first, last=last, records=min(tail.records, last + 1 - tail.first))


def carried_lines(places: Iterable[GroupPlace]) -> list[str]:
    """How many groups are carried, and which are not in all partitions, for people."""
    groups: dict[str, list[GroupPlace]] = defaultdict(list)
    for place in places:
        groups[place.group].append(place)
    left = {name: [each for each in own if not each.is_carried] for name, own in sorted(groups.items())}
    lines = [f"{sum(not own for own in left.values())} groups are carried"]
    for name, own in left.items():
        whys = sorted({_STAYS[each.standing] for each in own})
        if own:
            lines.append(f"group {name} is not carried in {len(own)} partitions: {', '.join(whys)}")
    return lines
