"""IncrementalAlterConfigs: set, remove, append to and subtract from single settings of a topic, a group,
a node or all nodes (KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum

from broker.errors import ErrorCode, ProtocolError
from broker.server.handlers.describe_configs import render
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.server.settings_alteration import alter, kind_of
from broker.settings import ResourceType, SettingType
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
    kind, name = resource.resource_type, resource.resource_name
    code, message = await alter(
        services,
        context,
        kind,
        name,
        lambda current: _changed(services, kind, resource.configs, current),
        validate_only=validate_only,
    )
    return AlterConfigsResourceResponse(
        error_code=code, error_message=message, resource_type=kind, resource_name=name
    )


def _require_distinct(changes: list[AlterableConfig]) -> None:
    """Raises ProtocolError INVALID_REQUEST for a setting that is to be changed twice."""
    twice = [name for name, count in Counter(change.name for change in changes).items() if count > 1]
    if twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} changed twice")


def _changed(
    services: Services, kind: int, changes: list[AlterableConfig], current: Mapping[str, str]
) -> dict[str, str]:
    _require_distinct(changes)
    settings = dict(current)
    for change in changes:
        if change.config_operation == _Operation.DELETE:
            settings.pop(change.name, None)
            continue
        if change.value is None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{change.name} without a value")
        match change.config_operation:
            case _Operation.SET:
                settings[change.name] = change.value
            case _Operation.APPEND | _Operation.SUBTRACT:
                words = _words(services, kind, change.name, settings)
                settings[change.name] = _edited(words, change)
            case operation:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, f"operation {operation} is unknown")
    return settings


def _words(services: Services, kind: int, name: str, settings: Mapping[str, str]) -> list[str]:
    """The items of a list now. Raises ProtocolError INVALID_CONFIG when the setting is none."""
    value_kind = kind_of(services, kind, name)
    if value_kind is None or value_kind.type is not SettingType.LIST:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name} is no list")
    text = settings.get(name)
    if text is None and kind == ResourceType.TOPIC:
        text = render(services.topic_configs.defaults, name)
    elif text is None:
        values = services.node_settings.values(name)
        text = values[0].value if values else None
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _edited(words: list[str], change: AlterableConfig) -> str:
    given = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.config_operation == _Operation.APPEND:
        return ",".join([*words, *(word for word in given if word not in words)])
    return ",".join(word for word in words if word not in given)
