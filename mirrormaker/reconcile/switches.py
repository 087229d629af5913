"""Which side of a failover group is at work: the record of its last switch. Pure.

    {"failover_group": NAME}    {"revision", "epoch", "side", "stage", "forced", "at_ms", "by", "fence",
                                 "tail", "until"}

It is in the control topics of both clusters of the group, or of the one that could be reached; where they
differ the greater revision counts. So a cluster that comes back with an old record is told, not believed.
Without any the group is at home.

    SETTLED -- failover, failback --> DRAINING --> SWITCHING --> SETTLED
    SWITCHING -- routes at rest have not copied all --> DRAINING
    SETTLED -- forced ------------> AWAY -- the other side comes back --> [TAIL -->] SETTLED
    SETTLED -- tail is to be copied --> TAIL --> SETTLED

    stage      routes that run
    SETTLED    those that lead from `side`
    DRAINING   those that lead to `side`: the last records are copied, the other side is fenced
    SWITCHING  none: positions and groups are carried over
    AWAY       none: the other side was lost, and has not been seen since
    TAIL       those that lead to `side`: what the other side had and `side` had not, is copied

Routes move groups along in SETTLED alone: in other stages the side that they lead to has records that groups
have not read at the side that they lead from, or groups have gone on there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document


class Side(Enum):
    """One of the two clusters of a group."""

    HOME = "home"
    STANDBY = "standby"

    @property
    def other(self) -> Side:
        return Side.STANDBY if self is Side.HOME else Side.HOME


class Stage(Enum):
    """How far a switch is; see the module."""

    DRAINING = "draining"
    SWITCHING = "switching"
    AWAY = "away"
    TAIL = "tail"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The last switch of a group."""

    revision: int = 0
    """Counts what was written about the group."""
    epoch: int = 0
    """Counts switches."""
    side: Side = Side.HOME
    """Where records are written, or will be once it is settled."""
    stage: Stage = Stage.SETTLED
    forced: bool = False
    """The other side could not be asked."""
    at_ms: int = 0
    by: str = ""
    fence: Mapping[str, str | None] = field(default_factory=dict)
    """Topics of the other side that are closed to writers, with the setting that they had before; None: they
    had none of their own.
    """
    tail: Mapping[str, Any] = field(default_factory=dict)
    """What was found at the other side that had not been copied, and what was decided about it."""
    until: Mapping[str, int] = field(default_factory=dict)
    """In the stage TAIL: by partition of the other side, how far it is copied."""

    @property
    def is_on_its_way(self) -> bool:
        """Whether a command has still to end it."""
        return self.stage in (Stage.DRAINING, Stage.SWITCHING, Stage.TAIL)

    @property
    def is_unsettled(self) -> bool:
        """Whether what only the side that is idle has is still to be dealt with."""
        is_forced = self.stage is Stage.SWITCHING and self.forced
        return self.stage in (Stage.AWAY, Stage.TAIL) or is_forced

    def runs_from(self, side: Side) -> bool:
        """Whether the routes that lead from `side` run."""
        match self.stage:
            case Stage.SETTLED:
                return side is self.side
            case Stage.DRAINING | Stage.TAIL:
                return side is not self.side
            case _:
                return False

    def carries_from(self, side: Side) -> bool:
        """Whether the routes that lead from `side` move groups along."""
        return self.stage is Stage.SETTLED and side is self.side

    @property
    def rank(self) -> tuple[int, int]:
        """Of two records the one with the greater rank counts."""
        return self.revision, self.at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTail:
    """Records that were found at the idle side of a group, and that the other one lacks."""

    revision: int
    """Of the switch under which they were found: the next one deals with them."""
    first: Mapping[TopicPartition, int]
    """Offset of the first of each partition."""


NEVER_SWITCHED = Switch()


def latest(switches: Iterable[Switch]) -> Switch:
    """The one that counts of those that were found."""
    return max(switches, key=lambda switch: switch.rank, default=NEVER_SWITCHED)


def switch_key(group: str) -> Document:
    """Key of the record about a group."""
    return {"failover_group": group}


def switch_value(switch: Switch) -> Document:
    """The record."""
    return {
        "revision": switch.revision,
        "epoch": switch.epoch,
        "side": switch.side.value,
        "stage": switch.stage.value,
        "forced": switch.forced,
        "at_ms": switch.at_ms,
        "by": switch.by,
        "fence": dict(switch.fence),
        "tail": dict(switch.tail),
        "until": dict(switch.until),
    }


def read_switches(records: Iterable[tuple[Document, Document]]) -> dict[str, Switch]:
    """What the records of a control topic say, by group; those of kinds not known here are passed over."""
    found: dict[str, Switch] = {}
    for key, value in records:
        match key:
            case {"failover_group": str(group)} if (switch := _read(value)) is not None:
                found[group] = switch
    return found


def _read(value: Document) -> Switch | None:
    match value:
        case {"revision": int(revision), "epoch": int(epoch), "side": str(side), "stage": str(stage)}:
            try:
                return Switch(
                    revision=revision,
                    epoch=epoch,
                    side=Side(side),
                    stage=Stage(stage),
                    forced=bool(value.get("forced")),
                    at_ms=int(value.get("at_ms", 0)),
                    by=str(value.get("by", "somebody")),
                    fence=dict(value.get("fence") or {}),
                    tail=dict(value.get("tail") or {}),
                    until={at: int(offset) for at, offset in dict(value.get("until") or {}).items()},
                )
            except (OverflowError, TypeError, ValueError):  # an infinite number, too, is no time
                return None
    return None
