"""Why partitions of a fetch are not read here, said as the version of the request can tell it."""

from __future__ import annotations

from collections.abc import Iterable

from broker.cluster.image import ClusterImage
from broker.errors import ErrorCode, ProtocolError, code_for_old_clients
from broker.replication.replica import Replica
from broker.server.fetch_sessions import IDS_FROM, FetchedPartition
from broker.server.following_node import FollowingNode
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import NO_LEADER, BrokerId, TopicPartition
from broker.wire.messages.fetch import FetchPartition, LeaderIdAndEpoch, NodeEndpoint, PartitionData

UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""What a client may as well wait for: the topic may be on its way."""
_STORAGE_ERROR_FROM = 6
"""First version whose clients know KAFKA_STORAGE_ERROR."""
_LEADER_HINT_FROM = 12


class FetchRefusals:
    """Answers for one fetch; all of them name its partition and hold no records."""

    __slots__ = ("_context", "_services", "_version")

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._context = context
        self._version = context.api_version

    def not_here(self, found: FetchedPartition) -> PartitionData:
        """There is no replica: its disk failed, other nodes have it, or nobody has."""
        services, number = self._services, found.wanted.partition
        if services.replicas.is_offline(found.topic, number):
            return failed(found.wanted, self._code(ErrorCode.KAFKA_STORAGE_ERROR))
        known = services.view.image.partition(TopicPartition(found.topic, number))
        if known is not None:
            answer = failed(found.wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._hint(answer, known.leader, known.leader_epoch)
            return answer
        is_unknown_id = self._version >= IDS_FROM and not found.topic
        return failed(
            found.wanted,
            ErrorCode.UNKNOWN_TOPIC_ID if is_unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def refused(
        self, found: FetchedPartition, replica: Replica, error: ProtocolError, *, to: FollowingNode | None
    ) -> PartitionData:
        """The replica does not give what was asked for. A follower is told where it could begin anew."""
        answer = failed(found.wanted, self._code(error.code))
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            assignment = replica.machine.assignment
            self._hint(answer, assignment.leader, assignment.leader_epoch)
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and to is not None:
            answer.high_watermark = replica.high_watermark
            answer.log_start_offset = replica.log.log_start_offset
        return answer

    def endpoints(self, answers: Iterable[PartitionData]) -> list[NodeEndpoint]:
        """Where the leaders that are named in `answers` can be reached."""
        leaders = dict.fromkeys(BrokerId(answer.current_leader.leader_id) for answer in answers)
        listener = self._context.session.listener.name
        return list(_reachable(self._services.view.image, leaders, listener))

    def _code(self, code: ErrorCode) -> ErrorCode:
        return code_for_old_clients(code, self._version, known_from=_STORAGE_ERROR_FROM)

    def _hint(self, answer: PartitionData, leader: BrokerId, leader_epoch: int) -> None:
        """Say who leads (KIP-951), to versions that can hear it."""
        if self._version >= _LEADER_HINT_FROM and leader != NO_LEADER:
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)


def failed(partition: FetchPartition, code: ErrorCode) -> PartitionData:
    """No records of this partition, for this reason."""
    return PartitionData(partition_index=partition.partition, error_code=code, high_watermark=-1, records=b"")


def _reachable(image: ClusterImage, brokers: Iterable[BrokerId], listener: str) -> Iterable[NodeEndpoint]:
    for broker in brokers:
        info = image.brokers.get(broker)
        address = None if info is None else info.address(listener)
        if info is not None and address is not None:
            yield NodeEndpoint(node_id=broker, host=address.host, port=address.port, rack=info.rack)
