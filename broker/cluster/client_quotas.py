"""Quotas of users, clients and addresses, as ZooKeeper keeps them and as they apply.

An entity is named by components: a user, a client id, both, or an address; a component without a name is the
default of its type. ZooKeeper has `users/U`, `clients/C`, `users/U/clients/C` and `ips/I` below `/config`,
names percent-encoded and `<default>` for a default. The settings beside quotas there (a user's credentials)
are left alone.

`QuotaTable` is pure: which of the quotas applies to a client is decided by Kafka's order of precedence, from
the entity that says most about it down to the default of all clients.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from broker.cluster.entity_configs import EntityConfigs
from broker.coordination import paths
from broker.telemetry import logger

log = logger("client_quotas")

ROOTS = ("users", "clients", "ips")
"""Where entities with quotas are, below `/config`."""
_DEFAULT = "<default>"


class EntityType(StrEnum):
    """What quotas are given to, by its name in the protocol."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class Component(NamedTuple):
    """One part of an entity; no name: the default of its type."""

    type: EntityType
    name: str | None


Entity = tuple[Component, ...]
"""A user, a client id, a user's client id, or an address."""


class Quota(StrEnum):
    """What can be limited, by the name of the setting."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


CLIENT_QUOTAS = frozenset(Quota) - {Quota.CONNECTION_CREATION_RATE}
WHOLE_QUOTAS = frozenset({Quota.PRODUCER_BYTE_RATE, Quota.CONSUMER_BYTE_RATE, Quota.CONNECTION_CREATION_RATE})
"""Those that are whole numbers."""
_QUOTA_NAMES = frozenset(map(str, Quota))
_FOLDERS = {"users": EntityType.USER, "clients": EntityType.CLIENT_ID, "ips": EntityType.IP}
_FOLDER_OF = {kind: folder for folder, kind in _FOLDERS.items()}


class Applied(NamedTuple):
    """A quota that applies to a client, and the entity that has it."""

    entity: Entity
    bound: float


class QuotaTable:
    """All quotas of the cluster."""

    def __init__(self) -> None:
        self._quotas: dict[Entity, dict[Quota, float]] = {}

    @property
    def limits_clients(self) -> bool:
        """Whether there is any quota of users or clients."""
        return any(entity[0].type is not EntityType.IP for entity in self._quotas)

    def set(self, entity: Entity, quotas: Mapping[Quota, float]) -> None:
        """Replace the quotas of an entity."""
        if quotas:
            self._quotas[entity] = dict(quotas)
        else:
            self._quotas.pop(entity, None)

    def entries(self) -> Iterator[tuple[Entity, Mapping[Quota, float]]]:
        """Every entity that has quotas."""
        yield from self._quotas.items()

    def of_client(self, quota: Quota, user: str, client_id: str) -> Applied | None:
        """What limits a user's client, None when nothing does."""
        return self._first(quota, _candidates(user, client_id))

    def of_address(self, host: str) -> float | None:
        """Connections a second that an address may open, None for any number."""
        candidates = ((Component(EntityType.IP, name),) for name in (host, None))
        applied = self._first(Quota.CONNECTION_CREATION_RATE, candidates)
        return None if applied is None else applied.bound

    def _first(self, quota: Quota, candidates: Iterable[Entity]) -> Applied | None:
        for entity in candidates:
            bound = self._quotas.get(entity, {}).get(quota)
            if bound is not None:
                return Applied(entity, bound)
        return None


def _candidates(user: str, client_id: str) -> Iterator[Entity]:
    clients = [Component(EntityType.CLIENT_ID, name) for name in (client_id, None)]
    for name in (user, None):
        of_user = Component(EntityType.USER, name)
        yield from ((of_user, client) for client in clients)
        yield (of_user,)
    yield from ((client,) for client in clients)


# As ZooKeeper keeps them


def entity_path(entity: Entity) -> str:
    """Where an entity's settings are, below `/config`."""
    return "/".join(f"{_FOLDER_OF[kind]}/{_encoded(name)}" for kind, name in entity)


def entity_at(path: str) -> Entity | None:
    """The inverse of `entity_path`; None for what is no entity with quotas."""
    parts = path.split("/")
    folders, names = parts[::2], parts[1::2]
    if len(names) != len(folders) or folders not in (["users"], ["clients"], ["ips"], ["users", "clients"]):
        return None
    return tuple(
        Component(_FOLDERS[folder], None if name == _DEFAULT else paths.decoded_name(name))
        for folder, name in zip(folders, names, strict=True)
    )


async def read_quotas(configs: EntityConfigs, path: str) -> dict[Quota, float] | None:
    """The quotas of one entity; those that cannot be read are logged and do not apply. None when nothing of
    the entity can be read.

    Raises CoordinationError.
    """
    settings = await configs.readable(path)
    if settings is None:
        return None
    quotas = {}
    for name, text in settings.items():
        if name not in _QUOTA_NAMES:
            continue
        try:
            quotas[Quota(name)] = _positive(text)
        except ValueError as error:
            log.warning("quota_ignored", entity=path, quota=name, reason=str(error))
    return quotas


async def quota_paths(configs: EntityConfigs) -> list[str]:
    """The paths of everything that may have quotas. Raises CoordinationError."""
    found = []
    for folder in ROOTS:
        for name in await configs.names(folder):
            path = f"{folder}/{name}"
            found.append(path)
            if folder == "users":
                found += [f"{path}/clients/{client}" for client in await configs.names(f"{path}/clients")]
    return found


def render(quota: Quota, value: float) -> str:
    """A quota as its setting is written."""
    return str(int(value)) if quota in WHOLE_QUOTAS else str(float(value))


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0 or math.isinf(value):
        raise ValueError(f"expected a number above 0, not {text!r}")
    return value


def _encoded(name: str | None) -> str:
    return _DEFAULT if name is None else paths.encoded_name(name)
