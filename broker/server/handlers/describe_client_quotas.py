"""DescribeClientQuotas: the quotas of users, clients and addresses that a filter lets through (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from broker.cluster.client_quotas import Entity, EntityType
from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Entities that have every component that the filter names, and, if it is strict, no other."""
    wanted = _filter(request.components)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=quota, value=value) for quota, value in quotas.items()],
            )
            for entity, quotas in services.quotas.table.entries()
            if _passes(entity, wanted, is_strict=request.strict)
        ],
    )


def refuse(
    request: DescribeClientQuotasRequest, error: ProtocolError, version: int
) -> DescribeClientQuotasResponse:
    """No entries, and why."""
    return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)


def _filter(components: Sequence[ComponentData]) -> Mapping[str, ComponentData]:
    """The filter by type. Raises ProtocolError for one that nothing can pass."""
    wanted: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if kind not in set(EntityType):
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"there are no entities of type {kind!r}")
        if kind in wanted:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{kind} is filtered twice")
        if component.match_type not in set(_Match):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"match type {component.match_type} is unknown")
        if (component.match_type == _Match.EXACT) is (component.match is None):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{kind}: a name belongs to an exact match only")
        wanted[kind] = component
    if EntityType.IP in wanted and len(wanted) > 1:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "quotas of addresses are of nothing else too")
    return wanted


def _passes(entity: Entity, wanted: Mapping[str, ComponentData], *, is_strict: bool) -> bool:
    names: dict[str, str | None] = dict(entity)
    if is_strict and names.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in names:
            return False
        if component.match_type != _Match.ANY and names[kind] != component.match:
            return False
    return True
