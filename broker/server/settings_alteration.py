"""Changing the settings of a topic, a group or of nodes: checked as a whole, written to ZooKeeper, in force
when this node has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.entity_configs import Change
from broker.coordination import paths
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.groups.group_configs import GROUP_SETTINGS, group_entity
from broker.groups.group_configs import KIND as GROUP_KIND
from broker.server.access import group_named, require, topic_named
from broker.server.node_settings import Layer
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.settings import Kind, ResourceType
from broker.storage.log_config import SETTINGS

Check = Callable[[Mapping[str, str]], None]
"""Raises ProtocolError INVALID_CONFIG for settings that cannot be."""


async def alter(
    services: Services,
    context: RequestContext,
    resource_type: int,
    name: str,
    change: Change,
    *,
    validate_only: bool,
) -> tuple[ErrorCode, str | None]:
    """Change the settings that a topic, a group, this node (by its id) or all nodes (no name) have as theirs.

    `change` may raise ProtocolError. Returns NONE, or why nothing was changed: INVALID_CONFIG listing what is
    wrong, INVALID_REQUEST for what cannot be altered, UNKNOWN_TOPIC_OR_PARTITION, and the codes of what the
    requester may not do.
    """
    try:
        entity, check = _entity(services, context, resource_type, name)
        await _write(services, entity, change, check, validate_only=validate_only)
    except ProtocolError as error:
        return error.code, error.message
    return ErrorCode.NONE, None


async def _write(
    services: Services, entity: str, change: Change, check: Check, *, validate_only: bool
) -> None:

    def checked(current: Mapping[str, str]) -> Mapping[str, str]:
        changed = change(current)
        check(changed)
        return changed

    try:
        if validate_only:
            checked(await services.entity_configs.read(entity))
        else:
            await services.entity_configs.alter(entity, checked)
    except CoordinationError as error:
        raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error


def require_this_node(services: Services, name: str) -> Layer:
    """The layer that the name of a node, or none, stands for. Raises ProtocolError INVALID_REQUEST."""
    if not name:
        return Layer.ALL_NODES
    if name != str(services.broker_id):
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"this is broker {services.broker_id}, it knows nothing of {name!r}"
        )
    return Layer.THIS_NODE


def require_group(name: str) -> None:
    """Groups have no settings in common but those of nodes. Raises ProtocolError INVALID_REQUEST."""
    if not name:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a group without an id has no settings")


def kind_of(services: Services, resource_type: int, name: str) -> Kind[object] | None:
    """The kind of a setting's values, or None when there is no such setting."""
    if resource_type == ResourceType.TOPIC:
        setting = SETTINGS.get(name)
        return setting.kind if setting is not None else None
    if resource_type == ResourceType.GROUP:
        return GROUP_KIND if name in GROUP_SETTINGS else None
    declared = services.node_settings.get(name)
    return declared.kind if declared is not None else None


def _entity(services: Services, context: RequestContext, resource_type: int, name: str) -> tuple[str, Check]:
    match resource_type:
        case ResourceType.TOPIC:
            require(services, context, Operation.ALTER_CONFIGS, topic_named(name))
            if services.view.image.topic(name) is None:
                raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return f"topics/{name}", services.topics.require_valid
        case ResourceType.BROKER:
            require(services, context, Operation.ALTER_CONFIGS, CLUSTER)
            layer = require_this_node(services, name)
            entity = name if layer is Layer.THIS_NODE else "<default>"
            return f"brokers/{entity}", services.node_settings.validate
        case ResourceType.GROUP:
            require(services, context, Operation.ALTER_CONFIGS, group_named(name))
            require_group(name)
            return group_entity(paths.encoded_name(name)), services.group_configs.require_valid
        case _:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no settings to alter"
            )
