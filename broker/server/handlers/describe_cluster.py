"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.handlers.metadata import brokers_on
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1


def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Out of the image; controllers are no endpoints of their own here."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    image = services.view.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers_on(image, context.session.listener.name)
        ],
    )
