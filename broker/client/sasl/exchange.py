"""What all mechanisms have in common: the side that speaks first, and how an exchange fails."""

from __future__ import annotations

from typing import Protocol

from broker.errors import AuthenticationError


class SaslError(AuthenticationError):
    """The other side broke the mechanism's rules, or did not prove who it is."""


class SaslExchange(Protocol):
    """The client's side of one exchange: `first` once, then `respond` to whatever the server says."""

    @property
    def mechanism(self) -> str:
        """The mechanism's registered name."""
        ...

    def first(self) -> bytes:
        """What the client says first."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """What to say to the server's last words; None when nothing is left to say and the server proved
        what the mechanism has it prove, which is so after a few rounds whatever the server says.

        Raises SaslError.
        """
        ...
