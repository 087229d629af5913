"""Replicas that move from broker to broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.client.admin_requests import AdminRequests, error_of
from broker.errors import ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """A move under way: all replicas of the partition for now, those that come, and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAdmin(AdminRequests):
    """Operations on the replicas of partitions (KIP-455).

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Begin to move partitions to these replicas, the preferred leader first, or, None, cancel the moves
        under way. Each begins or fails by itself. Raises ProtocolError.
        """
        topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
        for partition, replicas in targets.items():
            topics[partition.topic].append(
                ReassignablePartition(
                    partition_index=partition.partition, replicas=None if replicas is None else list(replicas)
                )
            )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        response = await self._ask_controller(lambda _: request, lambda answer: [answer.error_code])
        if error := error_of(response.error_code, response.error_message, "reassignment"):
            raise error
        return {
            TopicPartition(topic.name, answer.partition_index): error_of(
                answer.error_code, answer.error_message, f"{topic.name}-{answer.partition_index}"
            )
            for topic in response.responses
            for answer in topic.partitions
        }

    async def reassignments(self) -> dict[TopicPartition, OngoingReassignment]:
        """The moves under way. Raises ProtocolError."""
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms)
        response = await self._ask_controller(lambda _: request, lambda answer: [answer.error_code])
        if error := error_of(response.error_code, response.error_message, "reassignments"):
            raise error
        return {
            TopicPartition(topic.name, found.partition_index): OngoingReassignment(
                replicas=tuple(found.replicas),
                adding=tuple(found.adding_replicas),
                removing=tuple(found.removing_replicas),
            )
            for topic in response.topics
            for found in topic.partitions
        }
