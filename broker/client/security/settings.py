"""What a secured connection needs, as data: nothing is read, computed or asked for here.

Whoever opens a connection makes of it a TLS context (`tls_context`) and a SASL exchange (`logins`), anew for
each connection.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.client.sasl.scram_keys import ScramMechanism
from broker.client.sasl.unsecured_token import ClaimValue
from broker.client.security.text_source import TextSource

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
"""Those that are spoken, oldest first."""
UNSECURED_LIFETIME_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How TLS is spoken. Certificates and keys are PEM."""

    trusted: TextSource | None = None
    """Certificates of who is trusted; None: those that the system trusts."""
    certificate: TextSource | None = None
    """The client's own certificate, with the chain that leads to who is trusted."""
    key: TextSource | None = None
    """Its private key; None: it stands with the certificate."""
    key_password: TextSource | None = None
    checks_host: bool = True
    """Whether the peer's certificate must be for the host that was connected to."""
    versions: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCredentials:
    """For SASL PLAIN."""

    username: TextSource
    password: TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentials:
    """For SCRAM. With `of_delegation_token` the two are a token's id and its HMAC."""

    mechanism: ScramMechanism
    username: TextSource
    password: TextSource
    of_delegation_token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenToken:
    """A token that somebody else obtains: in a file it may change at any time."""

    token: TextSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledForToken:
    """A token that a function of one's own returns, MODULE:CALLABLE; called for every connection, in a
    thread.
    """

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredToken:
    """A token without a signature, made here, for clusters on trial."""

    claims: Mapping[str, ClaimValue]
    lifetime_ms: int = UNSECURED_LIFETIME_S * 1000


class KeptToken:
    """The last token from an endpoint, shared by all connections with the same settings; `lock` is held
    while one is asked for. Copies of the settings in other processes begin without one.
    """

    __slots__ = ("lock", "refresh_at_ms", "token", "valid_until_ms")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.refresh_at_ms = 0
        """Both on the monotonic clock."""
        self.valid_until_ms = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return KeptToken, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """A token that an OIDC provider grants for a client's credentials (RFC 6749 section 4.4)."""

    url: str
    client_id: TextSource
    client_secret: TextSource
    scope: str | None = None
    trusted: TextSource | None = None
    """Certificates of who is trusted at the endpoint; None: those that the system trusts."""
    kept: KeptToken = field(default_factory=KeptToken, compare=False, repr=False)


TokenSource = GivenToken | CalledForToken | UnsecuredToken | TokenEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerCredentials:
    """For OAUTHBEARER; extensions are told to the server along with the token."""

    source: TokenSource
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


DirectCredentials = PlainCredentials | ScramCredentials | BearerCredentials


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasCredentials:
    """What `sasl.jaas.config` says, where that is a secret as a whole and stands elsewhere."""

    mechanism: str
    config: TextSource
    others: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options that stand beside it."""
    kept: KeptToken = field(default_factory=KeptToken, compare=False, repr=False)


Credentials = DirectCredentials | JaasCredentials
