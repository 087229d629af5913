"""How a group stands: state, members, the generation and what it agreed on, and what of this the log has.

It answers questions and takes steps that others decided on; why and when is the business of `membership` and
its parts. `apply` is how both a live group and a recovering one take in what the log says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.errors import ErrorCode
from broker.groups.events import NO_MEMBER_ID, GroupMetadata, JoinReply, MemberMetadata, SyncReply
from broker.groups.roster import Member, Roster
from broker.groups.state import TRANSITIONS, State
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, same_topics, subscribed_topics


class Standing:
    """One group at this moment."""

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        self.stored: GroupMetadata | None = None
        """What the log says, as far as is known here; None when it says nothing."""
        self.topics: frozenset[str] | None = frozenset()
        """Topics that the current generation of consumers subscribed to; None when that cannot be told."""

    # What can be asked

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member uses `topic`; yes when that cannot be told."""
        return self.topics is None or topic in self.topics

    def supports(self, protocol_type: str, protocols: Mapping[str, bytes]) -> bool:
        """Whether somebody with these can be a member."""
        if not len(self.roster):
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and not self.roster.supported_by_all().isdisjoint(
            protocols
        )

    def keeps_assignments(self, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> bool:
        """Whether assignments stay right where a member's protocols change so: the same protocol would be
        chosen, and a consumer wants the same topics.
        """
        protocol = self.roster.select_protocol()
        if protocol != self.protocol:
            return False
        return not self.is_consumer_group or same_topics(old.get(protocol, b""), new[protocol])

    def member_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """What fences a request that claims to come from a member of the current generation."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.roster.identity_error(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def commit_error(
        self, generation: int, member_id: str, instance_id: str | None, *, transactional: bool = False
    ) -> ErrorCode:
        """Whether these may commit offsets now: a member of the current generation, or anyone while there are
        no members. In a transaction also who does not say which member it is, as old producers, and while the
        members wait for their assignments.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.member_error(member_id, instance_id, generation)
        if transactional:
            return error
        if error is ErrorCode.NONE and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    # What members and the log are told

    def joined(self, member: Member) -> JoinReply:
        """The current generation, to one who joined it."""
        is_leader = member.member_id == self.roster.leader and self.state is not State.STABLE
        return JoinReply(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader or "",
            members=self.roster.listed(self.protocol or "") if is_leader else (),
        )

    def returned(self, member: Member, leader_before: str, *, supports_skip_assignment: bool) -> JoinReply:
        """The current generation, to a static member that came back to it. One that led before is told so
        only where it can be told not to assign as well (KIP-814).
        """
        leads = member.member_id == self.roster.leader
        tells = leads and supports_skip_assignment
        return replace(
            self.joined(member),
            leader=(self.roster.leader or "") if tells else leader_before,
            skip_assignment=tells,
            members=self.roster.listed(self.protocol or "") if tells else (),
        )

    def assigned(self, member: Member) -> SyncReply:
        """What is a member's."""
        return SyncReply(
            error=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def recorded(self, members: tuple[MemberMetadata, ...]) -> GroupMetadata:
        """The group as the log is to have it, with these members."""
        return GroupMetadata(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )

    # What changes it

    def apply(self, metadata: GroupMetadata) -> None:
        """Become what the log says: the only way to Stable, of a live group and of one that is being read
        from the log.
        """
        self.stored = metadata
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type
        self.protocol = metadata.protocol
        self.roster.adopt(metadata)
        self.topics = self._subscribed_topics()
        self.move_to(State.STABLE if metadata.members else State.EMPTY, metadata.state_timestamp_ms)

    def move_to(self, state: State, now_ms: int) -> None:
        """Change state, by the table."""
        assert state in TRANSITIONS[self.state], f"{self.state} does not lead to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def agree(self) -> None:
        """Take the protocol that the members of a new generation agree on, and their topics."""
        self.protocol = self.roster.select_protocol() if len(self.roster) else None
        self.topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not len(self.roster):
            return frozenset()
        if not self.is_consumer_group or self.protocol is None:
            return None
        return subscribed_topics(member.protocols[self.protocol] for member in self.roster)
