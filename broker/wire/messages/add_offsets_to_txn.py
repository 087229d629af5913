"""AddOffsetsToTxn: the group whose offsets a transaction is about to commit."""

from __future__ import annotations

from broker.wire.message import Message, Request
from broker.wire.schema import int16, int32, int64, string


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
