"""Records of `__transaction_state`: the state of each transactional id."""

from __future__ import annotations

from collections.abc import Sequence

from broker.wire.message import VersionedData
from broker.wire.schema import Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(VersionedData, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: Sequence[int] = array(int32)


class TransactionLogValue(VersionedData, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
