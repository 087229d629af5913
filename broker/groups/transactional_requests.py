"""TxnOffsetCommit as what a group is to write, and its answer: pure translation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode
from broker.groups.offsets import CommittedOffset
from broker.types import TopicPartition
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def producer_of(request: TxnOffsetCommitRequest) -> ProducerIdentity:
    """Whose transaction the offsets belong to."""
    return ProducerIdentity(request.producer_id, request.producer_epoch)


def transactional_commit_of(
    request: TxnOffsetCommitRequest, *, now_ms: int
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of a TxnOffsetCommit."""
    return {
        TopicPartition(topic.name, partition.partition_index): CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp_ms=now_ms,
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def transactional_commit_response(
    asked: Iterable[TxnOffsetCommitRequestTopic],
    errors: Mapping[TopicPartition, ErrorCode],
    otherwise: ErrorCode,
) -> TxnOffsetCommitResponse:
    """Answer to TxnOffsetCommit, partition by partition as asked: each its own error, or `otherwise`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, partition.partition_index), otherwise
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked
        ]
    )
