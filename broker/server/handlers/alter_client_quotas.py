"""AlterClientQuotas: set and remove quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence

from broker.cluster.client_quotas import (
    CLIENT_QUOTAS,
    WHOLE_QUOTAS,
    Component,
    Entity,
    EntityType,
    Quota,
    entity_path,
    render,
)
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    ResponseEntryData,
)

_SHAPES = (
    (EntityType.USER,),
    (EntityType.CLIENT_ID,),
    (EntityType.USER, EntityType.CLIENT_ID),
    (EntityType.IP,),
)


async def handle(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Each entity is altered, or refused, by itself."""
    return AlterClientQuotasResponse(
        entries=[await _alter(services, entry, request.validate_only) for entry in request.entries]
    )


def refuse(
    request: AlterClientQuotasRequest, error: ProtocolError, version: int
) -> AlterClientQuotasResponse:
    """Every entity answered with the same error."""
    return AlterClientQuotasResponse(entries=[_answer(entry, error) for entry in request.entries])


async def _alter(services: Services, entry: EntryData, validate_only: bool) -> ResponseEntryData:
    try:
        entity = _entity(entry.entity)
        changes = _changes(entity, entry.ops)

        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            merged = {**current, **changes}
            return {name: value for name, value in merged.items() if value is not None}

        if not validate_only:
            try:
                await services.entity_configs.alter(entity_path(entity), change)
            except CoordinationError as error:
                raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, f"ZooKeeper: {error}") from error
    except ProtocolError as error:
        return _answer(entry, error)
    return _answer(entry, None)


def _answer(entry: EntryData, error: ProtocolError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[
            EntityData(entity_type=component.entity_type, entity_name=component.entity_name)
            for component in entry.entity
        ],
    )


def _entity(components: Sequence[EntityData]) -> Entity:
    """Raises ProtocolError INVALID_REQUEST for what can have no quotas."""
    kinds = {component.entity_type: component.entity_name for component in components}
    shape = next((shape for shape in _SHAPES if set(shape) == kinds.keys()), None)
    if shape is None or len(kinds) != len(components):
        named = ", ".join(component.entity_type for component in components) or "nothing"
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"quotas are of a user, a client-id, both, or an ip; not of {named}",
        )
    if "" in kinds.values():
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "an empty name; the default has none at all")
    address = kinds.get(EntityType.IP)
    if address is not None:
        _require_address(address)
    return tuple(Component(kind, kinds[kind]) for kind in shape)


def _require_address(address: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{address!r} is no address") from error


def _changes(entity: Entity, operations: Sequence[OpData]) -> dict[str, str | None]:
    """The settings to write; None removes one. Raises ProtocolError INVALID_REQUEST."""
    is_address = entity[0].type is EntityType.IP
    allowed = {Quota.CONNECTION_CREATION_RATE} if is_address else CLIENT_QUOTAS
    changes: dict[str, str | None] = {}
    for operation in operations:
        if operation.key not in allowed:
            known = ", ".join(sorted(allowed))
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"{operation.key!r} is no quota of this entity; there are {known}"
            )
        if operation.key in changes:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{operation.key} is altered twice")
        quota = Quota(operation.key)
        changes[quota] = None if operation.remove else render(quota, _checked(quota, operation.value))
    return changes


def _checked(quota: Quota, value: float) -> float:
    if not value > 0 or math.isinf(value):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{quota} is a number above 0, not {value}")
    if quota in WHOLE_QUOTAS and not value.is_integer():
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{quota} is a whole number, not {value}")
    return value
