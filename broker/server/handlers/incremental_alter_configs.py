"""IncrementalAlterConfigs: set, remove, append to and subtract from single settings of a topic (KIP-339)."""

from __future__ import annotations

from enum import IntEnum

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import require, topic_named
from broker.server.handlers.describe_configs import render
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.server.topic_alteration import alter, require_topic
from broker.settings import SettingType
from broker.storage.log_config import SETTINGS
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Each resource is altered, or refused, by itself."""
    return IncrementalAlterConfigsResponse(
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
        topic = resource.resource_name
        require(services, context, Operation.ALTER_CONFIGS, topic_named(topic))
        require_topic(services, resource.resource_type, topic)
        settings = dict(services.topic_configs.overrides(topic))
        for change in resource.configs:
            _change(services, topic, settings, change)
        await alter(services, topic, settings, validate_only=validate_only)
    except ProtocolError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _change(services: Services, topic: str, settings: dict[str, str], change: AlterableConfig) -> None:
    setting = SETTINGS.get(change.name)
    if setting is None:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{change.name}: unknown setting of a topic")
    match change.config_operation:
        case _Operation.SET:
            if change.value is None:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
            settings[change.name] = change.value
        case _Operation.DELETE:
            settings.pop(change.name, None)
        case _Operation.APPEND | _Operation.SUBTRACT:
            if setting.kind.type is not SettingType.LIST:
                raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{change.name} is no list")
            current = render(services.topic_configs.of(topic), change.name).split(",")
            words = (change.value or "").split(",")
            kept = [word for word in current if word and word not in words]
            added = words if change.config_operation == _Operation.APPEND else []
            settings[change.name] = ",".join(kept + added)
        case operation:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"operation {operation} is unknown")
