"""Who asks, over what, and what they may do: the seams that authentication and access control fill.

A listener has a security protocol, a connection on it a principal, and one authoriser decides about every
request. What each API asks it is in `routes` and `access`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from broker.types import HostPort


class SecurityProtocol(Enum):
    """How a listener secures its connections."""

    PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated name, or `User:ANONYMOUS`."""

    type: str = "User"
    name: str = "ANONYMOUS"

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address that the node listens on; clients that came in here are told the addresses of the same
    listener.
    """

    name: str
    protocol: SecurityProtocol
    address: HostPort

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


class Operation(IntEnum):
    """What can be done to a resource, by its number in the protocol."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceKind(IntEnum):
    """What rights are given on, by its number in the protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """One thing that rights are given on."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name!r}"


CLUSTER = Resource(ResourceKind.CLUSTER, "kafka-cluster")
"""The only resource of its kind, under the name that Kafka gives it."""


class Requester(Protocol):
    """Who asks."""

    @property
    def peer(self) -> HostPort: ...

    @property
    def principal(self) -> Principal: ...


class Authoriser(Protocol):
    """Decides what a requester may do; asked for every resource of every request, so it must be quick."""

    def allows(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        """Whether `requester` may do this to the resource."""
        ...


class AllowAll:
    """The authoriser as shipped: everyone may do everything."""

    def allows(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        return True
