"""PLAIN (RFC 4616): name and password as they are, in one message."""

from __future__ import annotations

from broker.client.sasl.exchange import SaslError

PLAIN = "PLAIN"


class PlainExchange:
    """The client's side; what the server answers says nothing, as its verdict comes outside of SASL."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self._message = plain_message(username, password)

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        return None


def plain_message(username: str, password: str) -> bytes:
    """Empty authorization id, name and password, parted by NUL. Raises SaslError for what cannot stand so."""
    for what, text in (("name", username), ("password", password)):
        if not text or "\0" in text:
            raise SaslError(f"{PLAIN}: the {what} is empty or holds a NUL")
    return f"\0{username}\0{password}".encode()
