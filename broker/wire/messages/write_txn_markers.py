"""WriteTxnMarkers: the transaction coordinator has partitions write the end of transactions."""

from __future__ import annotations

from collections.abc import Sequence

from broker.wire.message import Message, Request
from broker.wire.schema import Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    name: str = string()
    partition_indexes: Sequence[int] = array(int32)


class WritableTxnMarker(Struct):
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
