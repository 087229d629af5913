"""SaslAuthenticate: one step of the exchange of the SASL mechanism chosen before."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import bytestring, int16, int64, string


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytestring()


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytestring()
    session_lifetime_ms: int = int64("1+", ignorable=True)
