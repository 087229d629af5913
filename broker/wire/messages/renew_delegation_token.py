"""RenewDelegationToken: make a delegation token valid for longer."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import bytestring, int16, int32, int64


class RenewDelegationTokenRequest(
    Request["RenewDelegationTokenResponse"], key=39, versions="0-2", flexible="2+"
):
    hmac: bytes = bytestring()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
