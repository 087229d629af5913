"""Who may ask what of the daemon by HTTP. Pure.

Reading is open to whoever reaches the port. Changing (POST) needs the token where one is set, and is refused
altogether where the port is open to other machines without one. Pages of other sites in a browser on this
machine are no user of it: their requests carry an `Origin` of their own, or, with a name that was made to
point here, a `Host` that is not this machine's.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer instead of what was asked for."""

    status: int
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules for one port; `host` is the address that it is bound to."""

    host: str
    token: str | None = field(default=None, repr=False)

    def refusal(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is not served; None when it is. `headers` finds names in any case."""
        asked_host = _hostname(headers.get("Host", ""))
        if is_loopback(self.host) and not is_loopback(asked_host):
            return Refusal(
                status=403, reason=f"this is {self.host}, not {asked_host or 'a host without name'}"
            )
        if method in READING_METHODS:
            return None
        origin = headers.get("Origin")
        if origin is not None and _authority(origin) != headers.get("Host"):
            return Refusal(status=403, reason=f"pages of {origin} may change nothing here")
        if self.token is None:
            if is_loopback(self.host):
                return None
            return Refusal(status=403, reason="changes from other machines need a token: see --http-token")
        if not self._has_token(headers.get("Authorization", "")):
            return Refusal(
                status=401,
                reason="needs the header 'Authorization: Bearer TOKEN'",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return None

    def _has_token(self, authorization: str) -> bool:
        """An empty token is nobody's."""
        scheme, _, credentials = authorization.partition(" ")
        given = credentials.strip().encode(errors="surrogateescape")  # headers need not be text
        if scheme.lower() != "bearer" or self.token is None or not given:
            return False
        return hmac.compare_digest(given, self.token.encode())


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached by nobody else."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
