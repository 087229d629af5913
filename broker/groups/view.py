"""A group as DescribeGroups shows it: what members bring and get is shown while the group is stable."""

from __future__ import annotations

from dataclasses import dataclass

from broker.groups.standing import Standing
from broker.groups.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One member; `metadata` and `assignment` are empty unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group; `protocol` is empty unless it is stable."""

    state: State
    protocol_type: str
    protocol: str
    members: tuple[MemberView, ...]


def view_of(standing: Standing) -> GroupView:
    """The group at this moment."""
    protocol = standing.protocol if standing.state is State.STABLE else None
    return GroupView(
        state=standing.state,
        protocol_type=standing.protocol_type or "",
        protocol=protocol or "",
        members=tuple(
            MemberView(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.protocols[protocol] if protocol is not None else b"",
                assignment=member.assignment if protocol is not None else b"",
            )
            for member in standing.roster
        ),
    )
