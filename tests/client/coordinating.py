"""A node that coordinates a group of one member."""

from __future__ import annotations

import asyncio

from broker.client.group_offsets import OffsetAndMetadata
from broker.errors import ErrorCode
from broker.types import TopicPartition
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.client.peers import Peer


class CoordinatingPeer(Peer):
    """The coordinator of a group with one member, which it makes the leader.

    Codes are given out once each, in order.
    """

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(node_id)
        self.generation = 0
        self.heartbeat_codes: list[ErrorCode] = []
        self.join_codes: list[ErrorCode] = []
        self.sync_codes: list[ErrorCode] = []
        self.commit_codes: list[ErrorCode] = []
        self.may_join = asyncio.Event()
        """Joins are counted and answered once this is set."""
        self.may_join.set()
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.on(JoinGroupRequest, self._join)
        self.on(SyncGroupRequest, self._sync)
        self.on(HeartbeatRequest, lambda _: HeartbeatResponse(error_code=_next(self.heartbeat_codes)))
        self.on(LeaveGroupRequest, lambda _: LeaveGroupResponse())
        self.on(OffsetCommitRequest, self._commit)
        self.on(OffsetFetchRequest, self._fetch)

    async def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        await self.may_join.wait()
        if code := _next(self.join_codes):
            return JoinGroupResponse(error_code=code, member_id=request.member_id or "given")
        self.generation += 1
        member_id = request.member_id or f"member-{self.generation}"
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=request.protocols[0].name,
            leader=member_id,
            member_id=member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member_id,
                    metadata=request.protocols[0].metadata,
                    group_instance_id=request.group_instance_id,
                )
            ],
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        if code := _next(self.sync_codes):
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        code = _next(self.commit_codes)
        for topic in request.topics:
            for stored in topic.partitions:
                if not code:
                    self.offsets[TopicPartition(topic.name, stored.partition_index)] = OffsetAndMetadata(
                        offset=stored.committed_offset,
                        metadata=stored.committed_metadata or "",
                        leader_epoch=stored.committed_leader_epoch,
                    )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=stored.partition_index, error_code=code)
                        for stored in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if not request.groups:
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartition(
                                partition_index=number, **self._stored(topic.name, number)
                            )
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in request.topics or []
                ]
            )
        asked = request.groups[0].topics
        wanted = (
            [*self.offsets]
            if asked is None
            else [TopicPartition(topic.name, number) for topic in asked for number in topic.partition_indexes]
        )
        topics = [
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(partition_index=number, **self._stored(topic, number))
                ],
            )
            for topic, number in wanted
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    def _stored(self, topic: str, number: int) -> dict[str, object]:
        found = self.offsets.get(TopicPartition(topic, number), OffsetAndMetadata(offset=-1))
        return {"committed_offset": found.offset, "metadata": found.metadata}


def _next(codes: list[ErrorCode]) -> ErrorCode:
    return codes.pop(0) if codes else ErrorCode.NONE
