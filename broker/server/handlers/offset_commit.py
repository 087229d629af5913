"""OffsetCommit: a group keeps its positions; those in topics that do not exist are refused one by one.

Version 0 keeps them in ZooKeeper.
"""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.groups.requests import commit_response
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
)


async def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """What exists is committed; answers keep the order of the request."""
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
    errors = {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in asked
        if topic.name in denied
        for partition in topic.partitions
    }
    if request.topics or not asked:
        kept_by = services.groups if context.api_version else services.zookeeper_offsets
        response = await kept_by.commit_offsets(request, version=context.api_version)
        errors |= {
            TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }
    return commit_response(asked, errors, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refuse(request: OffsetCommitRequest, error: ProtocolError, version: int) -> OffsetCommitResponse:
    """Every partition answered with the same error."""
    return commit_response(request.topics, {}, error.code)


def _existing(services: Services, topic: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic:
    def exists(partition: OffsetCommitRequestPartition) -> bool:
        return image.partition(TopicPartition(topic.name, partition.partition_index)) is not None

    image = services.view.image
    return OffsetCommitRequestTopic(name=topic.name, partitions=list(filter(exists, topic.partitions)))
