"""Members of classic groups that have names of their own (KIP-345), as an administrator sees them."""

from __future__ import annotations

from collections.abc import Collection

from broker.client.admin_requests import Results, error_of
from broker.client.group_admin import GroupAdmin
from broker.errors import ErrorCode, ProtocolError
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

_FIRST_LEAVE_VERSION_WITH_MEMBERS = 3


class StaticMemberAdmin(GroupAdmin):
    """The operations on static members; part of `Admin`."""

    async def remove_static_members(
        self, group_id: str, instance_ids: Collection[str], *, reason: str | None = None
    ) -> Results:
        """Take members out of a classic group, by the names that survive their restarts: their partitions are
        handed out again at once. Each succeeds or fails by itself.

        Raises ProtocolError for the whole group: UNSUPPORTED_VERSION where nodes know no static members.
        """
        link = self._link(group_id)
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(member_id="", group_instance_id=instance, reason=reason)
                for instance in instance_ids
            ],
        )

        async def attempt() -> Results:
            connection = await link.connection()
            version = connection.version_of(LeaveGroupRequest)
            if version < _FIRST_LEAVE_VERSION_WITH_MEMBERS:
                raise ProtocolError(
                    ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} knows no static members"
                )
            response = await link.request(request, version)
            link.check(response.error_code, f"group {group_id}")
            return {
                member.group_instance_id or "": error_of(member.error_code, None, f"group {group_id}")
                for member in response.members
            }

        return await self._retried(attempt)
