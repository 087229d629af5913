"""Fetch: read record batches, as a consumer or as a follower, within a fetch session from version 7 on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from broker.types import Buffer
from broker.wire.message import Message, Request
from broker.wire.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    record_bytes,
    string,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: Sequence[int] = array(int32)


class FetchRequest(Request["FetchResponse"], key=1, versions="0-17", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)
    record_filter: str = string("12+", tag=100, ignorable=True)
    """Of nodes that have the feature `mirrormaker.fetch.filter`: which records are wanted."""
    in_order: bool = boolean("12+", tag=101, ignorable=True)
    """Of nodes that have the feature `mirrormaker.fetch.order`: who is named first gets the first bytes."""


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2)
    filtered_to: int = int64("12+", default=-1, tag=100, ignorable=True)
    """Of a fetch with a filter: behind which offset to go on."""
    filtered_bytes: int = int64("12+", default=0, tag=101, ignorable=True)
    """Of the same: by how much what was looked at is larger as it is stored."""
    filtered_epoch: int = int32("12+", default=-1, tag=102, ignorable=True)
    """Leader epoch of the batch before `filtered_to`, -1 when it has none."""
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = record_bytes(nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="16+", default=None)


class FetchResponse(Message, key=1, versions="0-17", flexible="12+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
