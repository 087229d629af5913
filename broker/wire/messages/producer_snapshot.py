"""The producers of a partition log as saved in its `.snapshot` files."""

from __future__ import annotations

from broker.wire.message import VersionedData
from broker.wire.schema import Struct, array, int16, int32, int64, uint32


class ProducerEntry(Struct):
    producer_id: int = int64()
    epoch: int = int16()
    last_sequence: int = int32()
    last_offset: int = int64()
    offset_delta: int = int32()
    timestamp: int = int64()
    coordinator_epoch: int = int32()
    current_txn_first_offset: int = int64()


class ProducerSnapshot(VersionedData, versions="1"):
    crc: int = uint32()
    producer_entries: list[ProducerEntry] = array(ProducerEntry)
