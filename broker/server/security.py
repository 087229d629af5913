"""Who asks, over what, and whether they may: the seams that authentication and access control fill.

A listener has a security protocol, a connection on it a principal, and one authoriser is asked for every
request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

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


class Authoriser(Protocol):
    """Decides whether a principal may use an API; asked once per request, before its handler."""

    def allows(self, principal: Principal, api_key: int) -> bool:
        """Whether `principal` may send requests of this API."""
        ...


class AllowAll:
    """The authoriser as shipped: everyone may do everything."""

    def allows(self, principal: Principal, api_key: int) -> bool:
        return True
