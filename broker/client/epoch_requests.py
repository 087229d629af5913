"""What a member of the consumer protocol (KIP-848) tells its coordinator: ConsumerGroupHeartbeat."""

from __future__ import annotations

from collections import defaultdict
from uuid import uuid4

from broker.client.cluster import Cluster
from broker.client.coordinator import CoordinatorLink
from broker.client.epoch_membership import Answered, Heartbeat, PartitionOfId, Partitions
from broker.client.group_settings import ConsumerGroupSettings
from broker.errors import ErrorCode, ProtocolError
from broker.types import HostPort, TopicId
from broker.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_VERSION_WITH_PATTERNS = 1


class EpochRequests:
    """The requests of one member. All raise BrokerError: what `CoordinatorLink` raises, and ProtocolError for
    an answer that is a refusal.
    """

    def __init__(self, cluster: Cluster, settings: ConsumerGroupSettings, *, lane: str) -> None:
        self.member_id = str(uuid4())
        """Members name themselves (KIP-1082), which the first version takes as well."""
        self._settings = settings
        self._link = CoordinatorLink(cluster, settings.group_id, lane=lane)

    async def resolves_patterns(self) -> bool:
        """Whether the coordinator finds the topics that match an expression."""
        _, version = await self._reach()
        return version >= _FIRST_VERSION_WITH_PATTERNS

    async def heartbeat(self, heartbeat: Heartbeat) -> Answered:
        """Tell the coordinator, and hear what it wants."""
        address, version = await self._reach()
        if heartbeat.pattern and version < _FIRST_VERSION_WITH_PATTERNS:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION, f"{address} cannot find topics by regular expressions"
            )
        response = await self._link.request(self._request(heartbeat), version)
        self._check(response, address)
        return Answered(
            heartbeat=heartbeat,
            member_epoch=response.member_epoch,
            heartbeat_interval_ms=response.heartbeat_interval_ms,
            assignment=None if response.assignment is None else _partitions(response.assignment),
        )

    async def _reach(self) -> tuple[HostPort, int]:
        connection = await self._link.connection()
        if not connection.serves(ConsumerGroupHeartbeatRequest):
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.address} does not serve ConsumerGroupHeartbeat, which group.protocol=consumer "
                "(KIP-848) needs: use group.protocol=classic",
            )
        return connection.address, connection.version_of(ConsumerGroupHeartbeatRequest)

    def _request(self, heartbeat: Heartbeat) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=heartbeat.member_epoch,
            instance_id=settings.instance_id,
            subscribed_topic_names=None if heartbeat.topics is None else sorted(heartbeat.topics),
            subscribed_topic_regex=heartbeat.pattern,
            topic_partitions=None if heartbeat.owned is None else _by_topic(heartbeat.owned),
        )
        if heartbeat.is_full:
            request.rack_id = settings.rack_id or None
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.server_assignor = settings.remote_assignor
        return request

    def _check(self, response: ConsumerGroupHeartbeatResponse, address: HostPort) -> None:
        code = ErrorCode.of(response.error_code)
        context = f"member {self.member_id} of group {self._settings.group_id}"
        if code is ErrorCode.UNSUPPORTED_VERSION:
            raise ProtocolError(
                code,
                f"{address} has the consumer protocol of groups (KIP-848) turned off: look at its feature "
                "group.version and its setting group.coordinator.rebalance.protocols",
            )
        if response.error_message:
            context = f"{context} at {address}: {response.error_message}"
        self._link.check(code, context)


def _by_topic(partitions: Partitions) -> list[TopicPartitions]:
    numbers: dict[TopicId, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        numbers[topic_id].append(partition)
    return [TopicPartitions(topic_id=topic_id, partitions=listed) for topic_id, listed in numbers.items()]


def _partitions(assignment: Assignment) -> Partitions:
    return frozenset(
        PartitionOfId(TopicId(topic.topic_id), partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
