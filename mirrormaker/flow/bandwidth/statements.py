"""What the processes that share limits tell each other of them. Pure.

A process tells, for each limit that it shares, how much of it it could use, and how much of its own part it
leaves to which others; and which statement of each of the others it goes by. A statement is about the limits
at one destination, and supersedes those that the process made of them before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from mirrormaker.flow.bandwidth.fair_parts import Want
from mirrormaker.topology.model import ClusterName

LimitName = NewType("LimitName", str)
MemberName = NewType("MemberName", str)
"""A process, from its start to its end: one that takes its place has another."""
WEIGHT_MAX = 1 << 53
"""What nobody reaches, and a `float` holds."""


def member_name(place: str, start: str) -> MemberName:
    """Of a process at its place; `start` tells it from those that had the place before."""
    return MemberName(f"{place}/{start}")


def place_of(member: MemberName) -> str:
    """What all have in common that take the place of one another."""
    return member.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Of one limit."""

    members: int
    """Processes that share it, as this one knows."""
    want: Want
    """Parts of the limit: 1 is all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """Of one process in one limit."""

    need: Need
    lends: Mapping[MemberName, float] = field(default_factory=dict)
    """Parts of the limit that these may use, beside their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """See the module."""

    destination: ClusterName
    member: MemberName
    number: int
    """Rises from statement to statement of a member about a destination."""
    heard: Mapping[MemberName, int]
    """The statement of each of the others that this process goes by."""
    stakes: Mapping[LimitName, Stake]


def encode_statement(statement: Statement) -> dict[str, Any]:
    """As plain data."""
    return {
        "destination": statement.destination,
        "member": statement.member,
        "number": statement.number,
        "heard": dict(statement.heard),
        "limits": {
            name: {
                "members": stake.need.members,
                "wants": stake.need.want.part,
                "weight": stake.need.want.weight,
                "lends": dict(stake.lends),
            }
            for name, stake in statement.stakes.items()
        },
    }


def decode_statements(told: Iterable[Any]) -> list[Statement]:
    """Those of them that can be read."""
    statements = [_statement_of(one) for one in told]
    return [statement for statement in statements if statement is not None]


def _statement_of(told: Any) -> Statement | None:
    match told:
        case {
            "destination": str(destination),
            "member": str(member),
            "number": int(number),
            "heard": dict(heard),
            "limits": dict(limits),
        }:
            stakes = {LimitName(name): _stake_of(stake) for name, stake in limits.items()}
            return Statement(
                destination=ClusterName(destination),
                member=MemberName(member),
                number=number,
                heard={MemberName(name): each for name, each in heard.items() if isinstance(each, int)},
                stakes={name: stake for name, stake in stakes.items() if stake is not None},
            )
    return None


def _stake_of(told: Any) -> Stake | None:
    match told:
        case {
            "members": int(members),
            "wants": float() | int() as part,
            "weight": float() | int() as weight,
            "lends": dict(lends),
        } if members > 0 and 0 <= part <= 1 and 0 < weight < WEIGHT_MAX:
            return Stake(
                need=Need(members=members, want=Want(part=part, weight=weight)),
                lends={MemberName(name): part for name, part in lends.items() if _is_part(part)},
            )
    return None


def _is_part(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1
