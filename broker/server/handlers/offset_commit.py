"""OffsetCommit: a group keeps its positions; those in topics that do not exist are refused one by one."""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


async def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """The coordinator commits what exists; answers keep the order of the request."""
    asked = request.topics
    denied = {
        topic.name
        for topic in asked
        if not is_allowed(services, context, Operation.READ, topic_named(topic.name))
    }
    request.topics = [
        topic
        for topic in (_existing(services, topic) for topic in asked if topic.name not in denied)
        if topic.partitions
    ]
    committed: dict[tuple[str, int], int] = {}
    if request.topics or not asked:
        response = await services.groups.commit_offsets(request, version=context.api_version)
        committed = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }

    def outcome(topic: str, partition: int) -> int:
        if topic in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return committed.get((topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return _answer(asked, outcome)


def refuse(request: OffsetCommitRequest, error: ProtocolError, version: int) -> OffsetCommitResponse:
    """Every partition answered with the same error."""
    return _answer(request.topics, lambda topic, partition: error.code)


def _answer(
    asked: list[OffsetCommitRequestTopic], outcome: Callable[[str, int], int]
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=outcome(topic.name, partition.partition_index),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in asked
        ]
    )


def _existing(services: Services, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic:
    def exists(partition: OffsetCommitRequestPartition) -> bool:
        return image.partition(TopicPartition(topic.name, partition.partition_index)) is not None

    image = services.view.image
    return OffsetCommitRequestTopic(name=topic.name, partitions=list(filter(exists, topic.partitions)))
