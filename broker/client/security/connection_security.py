"""How connections to a cluster are secured: as data, given to whoever opens them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from broker.client.security.options import read_options
from broker.client.security.settings import Credentials, TlsSettings
from broker.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSecurity:
    """TLS or not, and who the client is by SASL, or nobody. Shows no secret."""

    tls: TlsSettings | None = None
    credentials: Credentials | None = None
    references: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The options that say the same to a program elsewhere on this machine, where they hold no secret."""

    @classmethod
    def from_options(cls, options: Mapping[str, str], *, folder: Path | None = None) -> Self:
        """Security by Kafka's names: `security.protocol`, `ssl.*`, `sasl.*`; relative paths are below
        `folder`.

        Raises ConfigurationError with every problem, each beginning with its option. Files and references
        are not looked at before a connection is opened.
        """
        read = read_options(options, folder=folder)
        if read.problems:
            raise ConfigurationError([f"{problem.option}: {problem.message}" for problem in read.problems])
        return cls(tls=read.tls, credentials=read.credentials)

    @property
    def protocol(self) -> str:
        """As `security.protocol` names it."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        return transport if self.credentials is None else f"SASL_{transport}"


PLAINTEXT = ConnectionSecurity()
"""Neither TLS nor SASL."""
