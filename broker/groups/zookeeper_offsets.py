"""Offsets by version 0 of OffsetCommit and OffsetFetch: those clients keep theirs in ZooKeeper, and so do the
consumers that they share groups with. Any node answers; there is no membership to check.
"""

from __future__ import annotations

import asyncio

from broker.coordination import paths
from broker.coordination.consumer_offsets import keep_offset, kept_offset
from broker.coordination.protocol import Coordination
from broker.errors import CoordinationError, ErrorCode
from broker.groups.offsets import NOT_COMMITTED, CommittedOffset
from broker.groups.requests import (
    FetchedOffset,
    OffsetAnswer,
    commit_response,
    offset_queries,
    offset_response,
)
from broker.types import TopicPartition
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
)
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse


class ZooKeeperOffsets:
    """`/consumers/G/offsets/T/P`, on behalf of clients; `metadata_size_max` bounds what they note, in bytes,
    though none of it is kept.
    """

    def __init__(self, coordination: Coordination, *, metadata_size_max: int) -> None:
        self._coordination = coordination
        self._metadata_size_max = metadata_size_max

    async def commit_offsets(self, request: OffsetCommitRequest, *, version: int) -> OffsetCommitResponse:
        """Answered when the offsets are written, each by itself."""
        del version
        if not paths.is_name(request.group_id):
            return commit_response(request.topics, {}, ErrorCode.INVALID_GROUP_ID)
        asked = {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        codes = await asyncio.gather(*(self._commit(request.group_id, *each) for each in asked.items()))
        return commit_response(request.topics, dict(zip(asked, codes, strict=True)), ErrorCode.NONE)

    async def _commit(
        self, group_id: str, partition: TopicPartition, asked: OffsetCommitRequestPartition
    ) -> ErrorCode:
        if len((asked.committed_metadata or "").encode()) > self._metadata_size_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        path = paths.consumer_offset(group_id, partition)
        try:
            await keep_offset(self._coordination, path, asked.committed_offset)
        except CoordinationError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def fetch_offsets(self, request: OffsetFetchRequest, *, version: int) -> OffsetFetchResponse:
        """Partitions without an offset are UNKNOWN_TOPIC_OR_PARTITION, as Kafka answers this version."""
        (query,) = offset_queries(request, version=version)
        if not paths.is_name(query.group_id):
            return offset_response(
                [OffsetAnswer(query=query, error=ErrorCode.INVALID_GROUP_ID)], version=version
            )
        fetches = [self._fetch(query.group_id, partition) for partition in query.partitions or ()]
        answer = OffsetAnswer(query=query, offsets=tuple(await asyncio.gather(*fetches)))
        return offset_response([answer], version=version)

    async def _fetch(self, group_id: str, partition: TopicPartition) -> FetchedOffset:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            offset = (
                await kept_offset(self._coordination, paths.consumer_offset(group_id, partition))
                if paths.is_name(partition.topic)
                else None
            )
            if offset is not None:
                return FetchedOffset(partition=partition, committed=CommittedOffset(offset=offset))
        except CoordinationError:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FetchedOffset(partition=partition, committed=NOT_COMMITTED, error=error)
