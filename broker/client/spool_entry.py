"""A parked record as a file of a spool holds it: CRC-32C of the rest (4 bytes), version (2 bytes), fields.

Pure.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from broker.client.parking import ParkedRecord
from broker.client.record_cursor import ConsumerRecord
from broker.errors import StorageError, WireError
from broker.types import Buffer
from broker.wire.message import VersionedData
from broker.wire.schema import Struct, array, bytestring, int8, int32, int64, string

_CRC = struct.Struct(">I")


class _Header(Struct):
    name: str = string()
    value: bytes | None = bytestring(nullable="0+")


class _Entry(VersionedData, versions="0", flexible="0+"):
    topic: str = string()
    partition: int = int32()
    offset: int = int64()
    timestamp: int = int64()
    timestamp_type: int = int8()
    key: bytes | None = bytestring(nullable="0+")
    value: bytes | None = bytestring(nullable="0+")
    headers: list[_Header] = array(_Header)
    attempts: int = int32()
    error: str = string()
    parked_at_ms: int = int64()


def encode_entry(parked: ParkedRecord) -> bytes:
    """The bytes of a file."""
    record = parked.record
    entry = _Entry(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type,
        key=record.key,
        value=record.value,
        headers=[_Header(name=name, value=value) for name, value in record.headers],
        attempts=parked.attempts,
        error=parked.error.encode(errors="replace").decode(),
        parked_at_ms=parked.parked_at_ms,
    ).encode_with_version(0)
    return _CRC.pack(crc32c(entry)) + entry


def decode_entry(data: bytes, name: str) -> ParkedRecord:
    """The record that is in a file. Raises StorageError, which names the file."""
    content: Buffer = memoryview(data)[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != crc32c(content):
        raise StorageError(f"{name}: not a parked record, or a damaged one")
    try:
        _, entry = _Entry.decode_with_version(bytes(content))
    except WireError as error:
        raise StorageError(f"{name}: {error}") from error
    record = ConsumerRecord(
        entry.topic,
        entry.partition,
        entry.offset,
        entry.timestamp,
        entry.timestamp_type,
        entry.key,
        entry.value,
        [(header.name, header.value) for header in entry.headers],
    )
    return ParkedRecord(
        record=record, attempts=entry.attempts, error=entry.error, parked_at_ms=entry.parked_at_ms
    )
