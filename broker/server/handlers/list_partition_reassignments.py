"""ListPartitionReassignments: the moves of partitions that are under way."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answered by the controller; None asks for all of them. Raises ProtocolError NOT_CONTROLLER."""
    asked = None
    if request.topics is not None:
        asked = {TopicPartition(t.name, number) for t in request.topics for number in t.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for tp, move in services.controller.reassignments().items():
        if asked is None or tp in asked:
            topic = topics.setdefault(tp.topic, OngoingTopicReassignment(name=tp.topic))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
            )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
