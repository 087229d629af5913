"""SaslHandshake: choose the SASL mechanism of a connection."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import array, int16, string


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
