"""What a member of a group asks of its coordinator by the classic protocol: join, sync, heartbeat, leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.client.assignors import Assignment
from broker.client.cluster import Cluster
from broker.client.coordinator import CoordinatorLink
from broker.client.group_descriptions import MemberDescription, described_classic
from broker.client.group_offsets import Membership
from broker.client.group_protocol import PROTOCOL_TYPE, describe_assignments, read_assignment
from broker.client.group_settings import GroupSettings
from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.sync_group import SyncGroupRequest

_ANSWER_MARGIN_MS = 5_000
"""Joins and syncs are answered at the latest when the rebalance timeout is over; this long after that nobody
answers.
"""
_FIRST_JOIN_VERSION_WITH_INSTANCES = 5
_FIRST_LEAVE_VERSION_WITH_MEMBERS = 3


class MemberRequests:
    """The requests of one member. All raise BrokerError: what `CoordinatorLink` raises, and ProtocolError for
    an answer that is a refusal.
    """

    def __init__(self, cluster: Cluster, settings: GroupSettings, *, lane: str) -> None:
        self._cluster = cluster
        self._settings = settings
        self._link = CoordinatorLink(cluster, settings.group_id, lane=lane)

    async def join(
        self,
        member_id: str,
        protocols: Sequence[JoinGroupRequestProtocol],
        *,
        on_member_id: Callable[[str], None],
    ) -> JoinGroupResponse:
        """Join, with the id that the coordinator gave where it wants members to have one before (KIP-394);
        `on_member_id` is told it at once.
        """
        connection = await self._link.connection()
        version = connection.version_of(JoinGroupRequest)
        settings = self._settings
        if settings.instance_id is not None and version < _FIRST_JOIN_VERSION_WITH_INSTANCES:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} knows no static members"
            )
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=list(protocols),
        )
        joined = await self._link.request(request, version, timeout_ms=self._patience_ms)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            on_member_id(joined.member_id)
            joined = await self._link.request(request, version, timeout_ms=self._patience_ms)
        self._link.check(joined.error_code, f"join of group {settings.group_id}")
        return joined

    async def sync(self, joined: JoinGroupResponse, assignments: Mapping[str, Assignment]) -> Assignment:
        """Ask for this member's share; a leader brings everyone's."""
        request = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=describe_assignments(assignments),
        )
        synced = await self._link.request(request, timeout_ms=self._patience_ms)
        what = f"sync of group {self._settings.group_id}"
        if synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
            what += f": {_too_large(joined, request)}"
        self._link.check(synced.error_code, what)
        return read_assignment(synced.assignment)

    async def heartbeat(self, membership: Membership) -> bool:
        """Tell the coordinator that this member is alive; returns whether the group waits for it to join."""
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
        )
        response = await self._link.request(request, timeout_ms=self._settings.session_timeout_ms)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return True
        self._link.check(response.error_code, f"heartbeat of group {self._settings.group_id}")
        return False

    async def members(self) -> Sequence[MemberDescription]:
        """All members of the group; without partitions while they are shared out anew."""
        group_id = self._settings.group_id
        response = await self._link.request(
            DescribeGroupsRequest(groups=[group_id]), timeout_ms=self._settings.session_timeout_ms
        )
        (group,) = response.groups
        self._link.check(group.error_code, f"description of group {group_id}")
        return described_classic(group, coordinator=-1).members

    async def leave(self, member_id: str) -> None:
        """Tell the coordinator that this member is gone."""
        group_id = self._settings.group_id
        link = CoordinatorLink(self._cluster, group_id)  # the member's own lane may be waiting for a join
        connection = await link.connection()
        version = connection.version_of(LeaveGroupRequest)
        if version >= _FIRST_LEAVE_VERSION_WITH_MEMBERS:
            identity = MemberIdentity(
                member_id=member_id, group_instance_id=self._settings.instance_id, reason="closed"
            )
            request = LeaveGroupRequest(group_id=group_id, members=[identity])
        else:
            request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
        response = await link.request(request, version)
        link.check(response.error_code, f"leaving group {group_id}")

    @property
    def _patience_ms(self) -> int:
        return self._settings.rebalance_timeout_ms + _ANSWER_MARGIN_MS


def _too_large(joined: JoinGroupResponse, request: SyncGroupRequest) -> str:
    """What coordinators have no code for (`GroupMetadataManager.storeGroup` of Apache Kafka). The leader
    alone knows how much there is.
    """
    told = sum(len(member.metadata) for member in joined.members)
    told += sum(len(share.assignment) for share in request.assignments)
    size = f" of {told:,} bytes" if request.assignments else ""
    return (
        f"the group's metadata{size} may be larger than __consumer_offsets takes: raise its "
        "max.message.bytes, or have fewer members (workers) or topics in the group"
    )
