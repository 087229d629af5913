"""AlterReplicaLogDirs: have replicas of this node move to other data directories."""

from __future__ import annotations

from pathlib import Path

from broker.errors import ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answered once the moves are under way; DescribeLogDirs tells how far they are."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=partition,
                        error_code=await services.log_moves.ask(
                            TopicPartition(topic.name, partition), Path(directory.path)
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def refuse(
    request: AlterReplicaLogDirsRequest, error: ProtocolError, version: int
) -> AlterReplicaLogDirsResponse:
    """Every partition answered with the same error."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=error.code)
                    for partition in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )
