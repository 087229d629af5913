"""The partitions that a member of a group has, and the callbacks by which their owner takes them up, gives
them up and loses them.
"""

from __future__ import annotations

from broker.client.subscription import PartitionsCallback
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("group")


class GroupShare:
    """What one member has of its group's partitions, from one generation to the next."""

    def __init__(
        self,
        group_id: str,
        *,
        on_assigned: PartitionsCallback,
        on_revoked: PartitionsCallback,
        on_lost: PartitionsCallback,
    ) -> None:
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.user_data: bytes | None = None
        """What the leader's assignor told beside the partitions."""
        self._group_id = group_id
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost

    async def take_up(self, added: frozenset[TopicPartition]) -> None:
        """Have these as well. The owner is told of every assignment, also of one that adds none."""
        self.partitions |= added
        await self._on_assigned(added)

    async def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """Let the owner give the partitions up. Where it fails to, they are gone all the same."""
        if not partitions:
            return
        try:
            await self._on_revoked(partitions)
        except BrokerError as error:
            _log.warning("group_revocation_failed", group=self._group_id, error=str(error))
        self.partitions -= partitions

    async def keep(self, kept: frozenset[TopicPartition], member_id: str) -> None:
        """Lose the others, which could not be taken up."""
        added, self.partitions = self.partitions - kept, kept
        _log.warning(
            "group_partitions_not_taken_up", group=self._group_id, member=member_id, count=len(added)
        )
        await self._on_lost(added)

    async def lose(self, reason: str, member_id: str) -> None:
        """All are others' by now, for such a reason."""
        lost, self.partitions = self.partitions, frozenset()
        if not lost:
            return
        _log.warning(
            "group_partitions_lost", group=self._group_id, member=member_id, reason=reason, count=len(lost)
        )
        await self._on_lost(lost)
