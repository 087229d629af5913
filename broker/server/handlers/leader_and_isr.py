"""LeaderAndIsr: the controller says what this node is to its partitions."""

from __future__ import annotations

from broker.cluster.orders import named_partitions, names_all_roles
from broker.errors import ErrorCode
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(
    services: Services, context: RequestContext, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """Carried out by the replicas; what it leaves without a role is looked after."""
    response = await services.replicas.lead_and_follow(request)
    if names_all_roles(request) and response.error_code == ErrorCode.NONE:
        services.strays.told_all_roles(named_partitions(request))
    return response
