"""OffsetCommit: a group keeps its positions; those in topics that do not exist are refused one by one."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.request import RequestContext
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
    request.topics = [topic for topic in (_existing(services, topic) for topic in asked) if topic.partitions]
    committed: dict[tuple[str, int], int] = {}
    if request.topics or not asked:
        response = await services.groups.commit_offsets(request, version=context.api_version)
        committed = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=committed.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
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
