"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import allowed_operations, is_allowed
from broker.server.handlers.metadata import brokers_on
from broker.server.naming import Naming
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1


def handle(
    services: Naming, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Out of the image; controllers are no endpoints of their own here."""
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    image = services.view.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers_on(image, context.session.listener.name)
        ],
    )
    if request.include_cluster_authorized_operations:
        may_describe = is_allowed(services, context, Operation.DESCRIBE, CLUSTER)
        response.cluster_authorized_operations = (
            allowed_operations(services, context, CLUSTER) if may_describe else 0
        )
    return response
