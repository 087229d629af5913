"""AlterConfigs: replace all settings of a topic."""

from __future__ import annotations

from broker.errors import ProtocolError
from broker.server.access import require, topic_named
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.server.topic_alteration import alter, require_topic
from broker.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Each resource is altered, or refused, by itself."""
    return AlterConfigsResponse(
        responses=[
            await _alter(services, context, resource, request.validate_only) for resource in request.resources
        ]
    )


async def _alter(
    services: Services, context: RequestContext, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        require(services, context, Operation.ALTER_CONFIGS, topic_named(resource.resource_name))
        require_topic(services, resource.resource_type, resource.resource_name)
        settings = {setting.name: setting.value for setting in resource.configs if setting.value is not None}
        await alter(services, resource.resource_name, settings, validate_only=validate_only)
    except ProtocolError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
