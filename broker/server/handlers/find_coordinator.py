"""FindCoordinator: which broker a group or a transactional id belongs to; the topics that keep them are
created on first need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.coordinators.placement import partition_of
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import group_named, require, transactional_id
from broker.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.server.naming import Naming
from broker.server.request import RequestContext
from broker.server.security import Operation, Resource
from broker.types import HostPort
from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_BATCHES_FROM = 4


class _Kind(NamedTuple):
    """What coordinators of one type keep, and where."""

    topic: str
    resource_of: Callable[[str], Resource]


_KINDS = {0: _Kind(CONSUMER_OFFSETS, group_named), 1: _Kind(TRANSACTION_STATE, transactional_id)}
"""By the type that requests name."""


async def handle(
    services: Naming, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """From version 4 on several keys at once."""
    if context.api_version >= _BATCHES_FROM:
        return FindCoordinatorResponse(
            coordinators=[
                await _coordinator(services, context, key, request.key_type)
                for key in request.coordinator_keys
            ]
        )
    found = await _coordinator(services, context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _coordinator(services: Naming, context: RequestContext, key: str, key_type: int) -> Coordinator:
    try:
        node_id, address = await _find(services, context, key, key_type)
    except ProtocolError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=node_id, host=address.host, port=address.port)


async def _find(services: Naming, context: RequestContext, key: str, key_type: int) -> tuple[int, HostPort]:
    kind = _KINDS.get(key_type)
    if kind is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"coordinators of type {key_type} are unknown")
    require(services, context, Operation.DESCRIBE, kind.resource_of(key))
    if services.view.image.topic(kind.topic) is None:
        try:
            await services.topics.ensure(kind.topic)
        except ProtocolError as error:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
    image = services.view.image
    topic = image.topic(kind.topic)
    partition = None if topic is None else topic.partitions.get(partition_of(key, len(topic.partitions)))
    leader = image.brokers.get(partition.leader) if partition is not None else None
    address = leader.address(context.session.listener.name) if leader is not None else None
    if leader is None or address is None:
        raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return leader.id, address
