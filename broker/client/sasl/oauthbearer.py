"""OAUTHBEARER (RFC 7628): a bearer token in one message.

A server that refuses says why in JSON, waits for one more byte from the client, and only then fails the
exchange.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from broker.client.sasl.exchange import SaslError

OAUTHBEARER = "OAUTHBEARER"

_SEPARATOR = "\x01"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""b64token of RFC 6750."""
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_REASON_SIZE_MAX = 500


class BearerExchange:
    """The client's side. Raises SaslError for a token or extension that the message cannot carry."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise SaslError(f"{OAUTHBEARER}: the token is empty or holds what no bearer token holds")
        for name, value in (extensions or {}).items():
            if problem := extension_problem(name, value):
                raise SaslError(f"{OAUTHBEARER}: {problem}")
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        self._message = f"n,,{_SEPARATOR}{fields}{_SEPARATOR}".encode()
        self._refusal: str | None = None

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslError(f"{OAUTHBEARER}: the server refuses the token: {self._refusal}")
        if not challenge:
            return None
        self._refusal = _reason(challenge)
        return _SEPARATOR.encode()


def extension_problem(name: str, value: str) -> str | None:
    """What is wrong with an extension, by section 3.1."""
    if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
        return f"{name!r} is no name of an extension: letters, and not 'auth'"
    if not _EXTENSION_VALUE.fullmatch(value):
        return f"the value of the extension {name} holds what no extension holds"
    return None


def _reason(challenge: bytes) -> str:
    text = challenge.decode(errors="replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return text[:_REASON_SIZE_MAX]
    return ", ".join(f"{name} {value}" for name, value in answer.items())[:_REASON_SIZE_MAX]
