"""A note of the position that a group was given at the destination: who moved it last shows from it. Pure.

The note is written before the position is: the group stands at `to` if that succeeded, at `before` if not;
anywhere else, somebody else moved it. Once it has been seen at `to`, or its destination has said that it took
that, it is noted (`before` is `to`): from then on somebody has moved it also where it stands as before.
    key    that of the lane, and {"group": NAME}
    value  {"from": the group's position at the source, "to": that at the destination, "before": the one there
            until then, null for none}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mirrormaker.flow.kept_view import Document
from mirrormaker.ledger.lane_id import LaneId


class GroupMarkId(NamedTuple):
    """Of which group and lane."""

    group: str
    lane: LaneId

    def key(self) -> Document:
        """See the module."""
        return {**self.lane.key(), "group": self.group}

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> GroupMarkId:
        """Out of the key of a record. Raises ValueError."""
        if not isinstance(key.get("group"), str):
            raise ValueError("a key that names no group")
        return cls(key["group"], LaneId.of(key))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMark:
    """See the module."""

    source: int
    to: int
    before: int | None

    def value(self) -> Document:
        """See the module."""
        return {"from": self.source, "to": self.to, "before": self.before}

    def fits(self, committed: int | None) -> bool:
        """Whether nobody else moved the group since."""
        return committed in (self.to, self.before)

    def seen(self, committed: int | None) -> GroupMark | None:
        """What to note once the group is seen at `committed`; None: nothing that is news."""
        return None if committed != self.to or self.before == self.to else self.arrived

    @property
    def arrived(self) -> GroupMark:
        """What to note once it is sure that the group was given the position."""
        return replace(self, before=self.to)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> GroupMark:
        """Raises ValueError."""
        source, to, before = value.get("from"), value.get("to"), value.get("before")
        if type(source) is not int or type(to) is not int or not (before is None or type(before) is int):
            raise ValueError("no mark of a group")
        return cls(source=source, to=to, before=before)


def is_mark(key: Mapping[str, Any]) -> bool:
    """Whether a record of the ledger with this key is a mark."""
    return "group" in key
