"""ElectLeaders: preferred replicas lead again, or, on request, one that is not in sync."""

from __future__ import annotations

from collections import defaultdict

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_UNCLEAN = 1
_ERROR_FROM = 1


async def handle(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Answered by the controller, partition by partition; None asks for all of them."""
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(topic.topic, partition)
            for topic in request.topic_partitions
            for partition in topic.partitions
        ]
    results = await services.controller.elect_leaders(wanted, unclean=request.election_type == _UNCLEAN)
    topics: dict[str, list[PartitionResult]] = defaultdict(list)
    for partition, code in results.items():
        if wanted is None and code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        topics[partition.topic].append(
            PartitionResult(
                partition_id=partition.partition,
                error_code=code,
                error_message=None if code is ErrorCode.NONE else code.meaning,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=partitions)
            for topic, partitions in topics.items()
        ]
    )


def refuse(request: ElectLeadersRequest, error: ProtocolError, version: int) -> ElectLeadersResponse:
    """The error of the whole request, on each of its partitions too: version 0 has no other place."""
    return ElectLeadersResponse(
        error_code=error.code if version >= _ERROR_FROM else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=partition, error_code=error.code, error_message=error.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
