"""Control records: the markers that end a transaction in each of its partitions.

A marker is the only record of a transactional control batch. Key: version int16 | type int16. Value: version
int16 | coordinator epoch int32. Later versions append fields, which readers pass over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from broker.errors import CorruptRecordsError
from broker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, restamp
from broker.records.builder import BatchBuilder
from broker.records.reader import read_records
from broker.types import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
MARKER_BYTES_MAX = 4096
"""Bound of a control batch, as it is and unpacked."""


class MarkerType(IntEnum):
    """How a transaction ended, as numbered in the key of its marker."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The end of a transaction, as written by its coordinator."""

    type: MarkerType
    coordinator_epoch: int


def build_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    """The control batch with `marker`, base offset 0, CRC valid."""
    builder = BatchBuilder(
        size_max=MARKER_BYTES_MAX, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True
    )
    builder.append(
        timestamp_ms, _KEY.pack(_VERSION, marker.type), _VALUE.pack(_VERSION, marker.coordinator_epoch)
    )
    batch = builder.build()
    restamp(
        batch,
        0,
        len(batch),
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
    )
    return batch


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """The marker in the control batch that starts `batch`; None for control records of other kinds, or none.

    Raises CorruptRecordsError.
    """
    records = read_records(batch, header, size_max=MARKER_BYTES_MAX)
    if not records:
        return None  # compaction may leave the batch without its record
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _KEY.size:
        raise CorruptRecordsError(f"key of the control record at offset {header.base_offset} is torn")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordsError(f"version {version} of the control record at offset {header.base_offset}")
    if kind not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    if len(value) < _VALUE.size:
        raise CorruptRecordsError(f"value of the marker at offset {header.base_offset} is torn")
    return Marker(type=MarkerType(kind), coordinator_epoch=_VALUE.unpack_from(value)[1])
