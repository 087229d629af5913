"""ListConfigResources: the names of what has settings, by type (KIP-1142).

Loggers and metrics of clients have none here: there is nothing to list of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.settings import ResourceType
from broker.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES_FROM = 1
"""Version 0 asks for the metrics of clients."""
_WITHOUT_SETTINGS = frozenset({8, 16})
"""Loggers of brokers, metrics of clients."""


def handle(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Every type where none is named. Raises ProtocolError UNSUPPORTED_VERSION for an unknown type."""
    if context.api_version < _TYPES_FROM:
        return ListConfigResourcesResponse()
    asked = set(request.resource_types)
    if unknown := asked - _WITHOUT_SETTINGS - set(ResourceType):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {min(unknown)}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in ResourceType
            if kind in asked or not asked
            for name in sorted(_names(services, kind))
        ]
    )


def refuse(
    request: ListConfigResourcesRequest, error: ProtocolError, version: int
) -> ListConfigResourcesResponse:
    """No resources, and why."""
    return ListConfigResourcesResponse(error_code=error.code)


def _names(services: Services, kind: ResourceType) -> Iterable[str]:
    image = services.view.image
    match kind:
        case ResourceType.TOPIC:
            return image.topics
        case ResourceType.BROKER:
            return map(str, image.brokers)
        case ResourceType.GROUP:
            return services.group_configs.names
