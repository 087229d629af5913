"""AlterConfigs: replace all settings that a topic, a group, a node or all nodes have of their own."""

from __future__ import annotations

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.server.settings_alteration import alter
from broker.wire.messages.alter_configs import (
    AlterableConfig,
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
    kind, name = resource.resource_type, resource.resource_name
    code, message = await alter(
        services, context, kind, name, lambda _: _given(resource.configs), validate_only=validate_only
    )
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=kind, resource_name=name
    )


def _given(configs: list[AlterableConfig]) -> dict[str, str]:
    missing = [setting.name for setting in configs if setting.value is None]
    if missing:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{', '.join(missing)} without a value")
    return {setting.name: setting.value or "" for setting in configs}
