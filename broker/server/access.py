"""What a request must be allowed: Kafka's rules, and how handlers ask whether they hold.

Every route names its rule. `on_cluster` and `on_group` are about one resource: dispatch asks before the
handler runs, and a request that is not allowed is refused as a whole. `each` is about resources that the
request names, or its answer shows: the handler asks for every one of them, answers the refused ones with the
error that belongs to their kind, and shows nothing that its peer may not know of. An authoriser sees
requests from outside only; what a node's controller asks of its own node does not pass here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from broker.errors import ErrorCode, ProtocolError
from broker.server.naming import Authorised
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation, Resource, ResourceKind

TOPICS_KEPT = 10_000
_DENIED = {
    ResourceKind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceKind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceKind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceKind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_OPERATIONS = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""The operations that make sense on each kind of resource."""


class Whole(NamedTuple):
    """A question about a whole request: the operation, and the resource that the request is about. `instead`:
    an operation there that is enough, too.
    """

    operation: Operation
    resource_of: Callable[[Any], Resource]
    instead: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one API needs; see the module. `needs` is empty for what everyone may ask."""

    needs: frozenset[tuple[Operation, ResourceKind]] = frozenset()
    whole: Whole | None = None
    """What dispatch asks about; None where only the handler does."""


ANYONE = Rule()
"""Open to all: what a client must know before it can be anyone."""


def on_cluster(operation: Operation, *, instead: Operation | None = None) -> Rule:
    """The request as a whole acts on the cluster; whoever may do `instead` there may send it, too."""
    needs = frozenset({(operation, ResourceKind.CLUSTER)})
    return Rule(needs=needs, whole=Whole(operation, lambda _: CLUSTER, instead))


def on_group(operation: Operation, *further: tuple[Operation, ResourceKind]) -> Rule:
    """The request as a whole is about its `group_id`; its handler may ask for more."""
    needs = frozenset({(operation, ResourceKind.GROUP), *further})
    return Rule(needs=needs, whole=Whole(operation, lambda request: group_named(request.group_id)))


def each(*needs: tuple[Operation, ResourceKind]) -> Rule:
    """The handler asks, resource by resource."""
    return Rule(needs=frozenset(needs))


@lru_cache(TOPICS_KEPT)
def topic_named(name: str | None) -> Resource:
    """Asked for by every produce and fetch, so each topic's is made once."""
    return Resource(ResourceKind.TOPIC, name or "")


def group_named(group_id: str) -> Resource:
    return Resource(ResourceKind.GROUP, group_id)


def transactional_id(name: str) -> Resource:
    return Resource(ResourceKind.TRANSACTIONAL_ID, name)


def is_allowed(
    services: Authorised, context: RequestContext, operation: Operation, resource: Resource
) -> bool:
    """Whether whoever sent the request may do this."""
    return services.authoriser.allows(context.session, operation, resource)


def require(services: Authorised, context: RequestContext, operation: Operation, resource: Resource) -> None:
    """Raise ProtocolError with the code for this kind of resource unless that is allowed."""
    if not services.authoriser.allows(context.session, operation, resource):
        raise refusal(context, operation, resource)


def require_whole(services: Authorised, context: RequestContext, whole: Whole, request: Any) -> None:
    """Raise ProtocolError unless the sender may send the request at all."""
    resource = whole.resource_of(request)
    enough = (whole.operation,) if whole.instead is None else (whole.operation, whole.instead)
    if not any(is_allowed(services, context, operation, resource) for operation in enough):
        raise refusal(context, whole.operation, resource)


def refusal(context: RequestContext, operation: Operation, resource: Resource) -> ProtocolError:
    """The error of a request that is not allowed."""
    return ProtocolError(
        _DENIED[resource.kind],
        f"{context.session.principal} may not {operation.name.lower().replace('_', ' ')} {resource}",
    )


def allowed_operations(services: Authorised, context: RequestContext, resource: Resource) -> int:
    """What the requester may do to the resource, a bit for each operation (KIP-430)."""
    bits = 0
    for operation in _OPERATIONS[resource.kind]:
        if is_allowed(services, context, operation, resource):
            bits |= 1 << operation
    return bits - (1 << 32) if bits >= 1 << 31 else bits
