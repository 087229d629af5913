"""AlterConfigs: replace all settings that a topic, a node or all nodes have of their own."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.server.settings_alteration import alter
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
        missing = [setting.name for setting in resource.configs if setting.value is None]
        if missing:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{', '.join(missing)} without a value")
        settings = {setting.name: setting.value or "" for setting in resource.configs}
        await alter(
            services,
            context,
            resource.resource_type,
            resource.resource_name,
            lambda _: settings,
            validate_only=validate_only,
        )
    except ProtocolError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
