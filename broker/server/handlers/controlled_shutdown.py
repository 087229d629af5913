"""ControlledShutdown: a node that is about to stop asks the controller to move its leaderships first."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import BrokerId
from broker.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(
    services: Services, context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Answered by the controller with what it could not move."""
    remaining = await services.controller.controlled_shutdown(
        BrokerId(request.broker_id), request.broker_epoch
    )
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=partition.topic, partition_index=partition.partition)
            for partition in remaining
        ]
    )
