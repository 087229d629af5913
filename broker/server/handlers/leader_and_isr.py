"""LeaderAndIsr: the controller says what this node is to its partitions."""

from __future__ import annotations

from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(
    services: Services, context: RequestContext, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """Carried out by the replicas."""
    return await services.replicas.lead_and_follow(request)
