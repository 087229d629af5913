"""Quotas of users, clients and addresses: describe and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.client.admin_requests import AdminRequests, error_of
from broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from broker.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

QuotaEntity = Mapping[str, str | None]
"""Name by type: `user`, `client-id`, both, or `ip`; None is the default of the type."""


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityQuotas:
    """An entity and its quotas by name."""

    entity: QuotaEntity
    quotas: Mapping[str, float]


class QuotaAdmin(AdminRequests):
    """Operations on quotas.

    All raise ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """

    async def describe_quotas(self, entity: QuotaEntity) -> list[EntityQuotas]:
        """The quotas of whatever has all these components: of everything for an empty entity.

        Raises ProtocolError.
        """
        request = DescribeClientQuotasRequest(
            components=[
                ComponentData(
                    entity_type=kind,
                    match_type=_Match.DEFAULT if name is None else _Match.EXACT,
                    match=name,
                )
                for kind, name in entity.items()
            ]
        )

        async def attempt() -> list[EntityQuotas]:
            response = await (await self._cluster.any_connection()).request(request)
            if error := error_of(response.error_code, response.error_message, "quotas"):
                raise error
            return [
                EntityQuotas(
                    entity={part.entity_type: part.entity_name for part in entry.entity},
                    quotas={value.key: value.value for value in entry.values},
                )
                for entry in response.entries or ()
            ]

        return await self._retried(attempt)

    async def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity, or with None remove them. Raises ProtocolError."""
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[
                OpData(key=quota, value=value or 0.0, remove=value is None)
                for quota, value in changes.items()
            ],
        )
        request = AlterClientQuotasRequest(entries=[entry])

        async def attempt() -> None:
            response = await (await self._cluster.any_connection()).request(request)
            for altered in response.entries:
                if error := error_of(altered.error_code, altered.error_message, "quotas"):
                    raise error

        await self._retried(attempt)
