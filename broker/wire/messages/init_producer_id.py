"""InitProducerId: a producer id for idempotence; for a transactional id it fences the former owner."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import int16, int32, int64, string


class InitProducerIdRequest(Request["InitProducerIdResponse"], key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
