"""Who belongs to a group: its members, which of them leads, static members by instance id, and ids handed out
but not used.

Plain bookkeeping for `membership`, without a notion of states. Members are kept in the order in which they
came; the first to join leads and goes on leading until it leaves, then the next in order does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from broker.errors import ErrorCode
from broker.groups.events import GroupMetadata, JoinedMember, MemberMetadata, Waiter


@dataclass(slots=True, kw_only=True)
class Member:
    """One member while the group is in memory; `protocols` maps the names it supports, most liked first, to
    its metadata.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Mapping[str, bytes]
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    is_new: bool = False
    """No answer to its first join yet: it cannot send heartbeats, as it does not know its id."""
    owes_sync: bool = False
    """It was told of the generation and has not asked for its assignment."""

    @property
    def is_waiting(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    def matches(self, protocols: Mapping[str, bytes]) -> bool:
        """Whether names, order of preference and metadata are the ones known already."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that this member likes most; there is one, since candidates are supported by every
        member.
        """
        return next(name for name in self.protocols if name in candidates)

    def recorded(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """The member as the log keeps it."""
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.protocols.get(protocol, b""),
            assignment=assignment,
        )


class Roster:
    """The members of one group."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()
        self.leader: str | None = None
        self._static: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self.members.values()))

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go; if it led, the longest-standing one leads now."""
        del self.members[member.member_id]
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member that came back its new id; it keeps its place, its assignment and its
        leadership.
        """
        old_member_id = member.member_id
        member.member_id = new_member_id
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self._static[member.instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that registered with this instance id."""
        member_id = self._static.get(instance_id) if instance_id is not None else None
        return self.members[member_id] if member_id is not None else None

    def identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE for a member that is who it says, FENCED_INSTANCE_ID for one that was replaced, else
        UNKNOWN_MEMBER_ID.
        """
        if instance_id is None:
            return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID
        current = self._static.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if current == member_id else ErrorCode.FENCED_INSTANCE_ID

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member sets the pace."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joining_count(self) -> int:
        """Members that wait for the answer to a join."""
        return sum(member.join_waiter is not None for member in self.members.values())

    @property
    def everyone_joined(self) -> bool:
        """Nobody known to the group, by membership or by a pending id, is missing."""
        return not self.pending and self.joining_count == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Let one of those that joined lead if the leader did not; False when nobody joined."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.join_waiter is not None:
            return True
        joined = next((each for each in self.members.values() if each.join_waiter is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def supported_by_all(self) -> set[str]:
        """Names of the protocols that every member supports."""
        names = [set(member.protocols) for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all support; of equal ones the earliest member's
        choice.
        """
        candidates = self.supported_by_all()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def listed(self, protocol: str) -> tuple[JoinedMember, ...]:
        """All members with their metadata for `protocol`: what the leader assigns by."""
        return tuple(
            JoinedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                metadata=member.protocols[protocol],
            )
            for member in self.members.values()
        )

    def adopt(self, metadata: GroupMetadata) -> None:
        """Become the members that the log tells of; those known just so are kept as they are."""
        known, protocol = self.members, metadata.protocol or ""
        self.members, self._static, self.leader = {}, {}, metadata.leader
        for recorded in metadata.members:
            member = known.get(recorded.member_id)
            if member is None or member.recorded(protocol, recorded.assignment) != recorded:
                member = _revive(recorded, protocol)
            member.assignment = recorded.assignment
            self.add(member)


def _revive(recorded: MemberMetadata, protocol: str) -> Member:
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout_ms,
        rebalance_timeout_ms=(
            recorded.rebalance_timeout_ms
            if recorded.rebalance_timeout_ms >= 0
            else recorded.session_timeout_ms
        ),
        protocols={protocol: recorded.subscription},
    )
