"""ExpireDelegationToken: end the validity of a delegation token."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import bytestring, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request["ExpireDelegationTokenResponse"], key=40, versions="0-2", flexible="2+"
):
    hmac: bytes = bytestring()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, key=40, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
