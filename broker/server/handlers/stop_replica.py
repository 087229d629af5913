"""StopReplica: the controller takes partitions away from this node."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(
    services: Services, context: RequestContext, request: StopReplicaRequest
) -> StopReplicaResponse:
    """Carried out by the replicas."""
    return await services.replicas.stop(request)
