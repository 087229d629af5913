"""Records of `__consumer_offsets` that hold the state of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from broker.wire.message import VersionedData
from broker.wire.schema import Struct, array, bytestring, int8, int32, int64, nested, string, uuid


class ConsumerGroupCurrentMemberAssignmentKey(VersionedData, versions="8"):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: Sequence[int] = array(int32)


class ConsumerGroupCurrentMemberAssignmentValue(VersionedData, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupMemberMetadataKey(VersionedData, versions="5"):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytestring()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(VersionedData, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


class ConsumerGroupMetadataKey(VersionedData, versions="3"):
    group_id: str = string()


class ConsumerGroupMetadataValue(VersionedData, versions="0", flexible="0+"):
    epoch: int = int32()


class ConsumerGroupPartitionMetadataKey(VersionedData, versions="4"):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(VersionedData, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupTargetAssignmentMemberKey(VersionedData, versions="7"):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: UUID = uuid()
    partitions: Sequence[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(VersionedData, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupTargetAssignmentMetadataKey(VersionedData, versions="6"):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(VersionedData, versions="0", flexible="0+"):
    assignment_epoch: int = int32()


class ConsumerGroupRegularExpressionKey(VersionedData, versions="16"):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(VersionedData, versions="0", flexible="0+"):
    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
