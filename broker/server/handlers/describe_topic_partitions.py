"""DescribeTopicPartitions: topics with their partitions, in pages that go on by the order of names (KIP-966).

A page holds so many partitions, and its cursor names the first one that it has no room for. No node knows of
replicas that may lead without being in sync, so those lists are empty, as of a Kafka where they are not
enabled.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.cluster.image import ClusterImage, TopicImage
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import allowed_operations, is_allowed, topic_named
from broker.server.handlers.metadata import partition_on, reason_for_absence
from broker.server.internal_topics import INTERNAL_TOPICS
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page out of the image. Raises ProtocolError INVALID_REQUEST for a cursor to nowhere."""
    image = services.view.image
    asked = {topic.name for topic in request.topics}
    cursor = _checked_cursor(request.cursor, asked)
    response = DescribeTopicPartitionsResponse()
    room = max(1, min(request.response_partition_limit, services.limits.partitions_described_max))
    for name in sorted(name for name in asked or image.topics if name >= cursor.topic_name):
        topic = image.topic(name)
        if not is_allowed(services, context, Operation.DESCRIBE, topic_named(name)):
            if asked:
                response.topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            response.topics.append(_refused(name, reason_for_absence(name)))
        elif not room:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        else:
            first = cursor.partition_index if name == cursor.topic_name else 0
            numbers = sorted(number for number in topic.partitions if number >= first)
            described = _described(image, topic, numbers[:room], context.session.listener.name)
            described.topic_authorized_operations = allowed_operations(services, context, topic_named(name))
            response.topics.append(described)
            if len(numbers) > room:
                response.next_cursor = Cursor(topic_name=name, partition_index=numbers[room])
                break
            room -= len(numbers)
    return response


def refuse(
    request: DescribeTopicPartitionsRequest, error: ProtocolError, version: int
) -> DescribeTopicPartitionsResponse:
    """Every topic answered with the same error."""
    return DescribeTopicPartitionsResponse(
        topics=[_refused(topic.name, error.code) for topic in request.topics]
    )


def _checked_cursor(cursor: Cursor | None, asked: set[str]) -> Cursor:
    if cursor is None:
        return Cursor(topic_name="", partition_index=0)
    if asked and cursor.topic_name not in asked:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"the cursor is at {cursor.topic_name!r}, which is not asked for"
        )
    if cursor.partition_index < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"the cursor is at partition {cursor.partition_index}")
    return cursor


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _described(
    image: ClusterImage, topic: TopicImage, numbers: Sequence[int], listener: str
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, topic, number, listener) for number in numbers],
    )


def _partition(
    image: ClusterImage, topic: TopicImage, number: int, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    """As Metadata tells of it, but that a missing leader is no error."""
    known = partition_on(image, number, topic.partitions[number], listener)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=known.leader_id,
        leader_epoch=known.leader_epoch,
        replica_nodes=known.replica_nodes,
        isr_nodes=known.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=known.offline_replicas,
    )
