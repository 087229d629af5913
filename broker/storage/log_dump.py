"""A log file as lines: its entries as DumpLogSegments prints them, and the records inside on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader, next_sequence
from broker.records.record import Record, TimestampType
from broker.storage.disk import File
from broker.storage.dump_line import Damage, DumpLine, FieldValue, Finding, LineKind, OptionalLong
from broker.storage.stored_entries import ENTRY_BYTES_MAX, StoredEntry, codec_name, records_of, stored_entries

RecordDecoder = Callable[[bytes | None, bytes | None], tuple[FieldValue, FieldValue]]
"""Key and value of a record as they are to be shown."""

_TIMESTAMP_NAMES: Mapping[int, str] = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_CONTROL_NAMES: Mapping[int, str] = {0: "ABORT", 1: "COMMIT"}
_CONTROL_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDumpOptions:
    """What of a log is shown."""

    deep: bool = False
    """The records too."""
    print_data: bool = False
    """Keys and payloads of the records too."""
    record_metadata: bool = True
    """All else that is known of a record."""
    decoder: RecordDecoder | None = None
    bytes_max: int | None = None
    """Read no further than this many bytes of whole entries."""
    entry_bytes_max: int = ENTRY_BYTES_MAX


def dump_log(file: File, base_offset: int, options: LogDumpOptions) -> Iterator[Finding]:
    """Lines and damage of the log whose name says `base_offset`. Raises StorageError when the disk fails."""
    yield DumpLine(LineKind.NOTE, {"Log starting offset": base_offset})
    expected = base_offset
    for entry in stored_entries(file, file.size(), entry_bytes_max=options.entry_bytes_max):
        if isinstance(entry, Damage):
            yield entry
            continue
        if options.bytes_max is not None and entry.position + entry.header.size > options.bytes_max:
            return
        yield entry_line(entry)
        if entry.damage is not None:
            yield entry.damage
        if entry.header.base_offset < expected:
            yield Damage(
                entry.position, f"offset {entry.header.base_offset} where {expected} could be the least"
            )
        expected = entry.header.next_offset
        if options.deep or options.print_data:
            yield from _record_lines(entry, options)


def entry_line(entry: StoredEntry) -> DumpLine:
    """The line of an entry, in the order and words of DumpLogSegments."""
    return DumpLine(LineKind.BATCH, _batch(entry) if entry.header.magic == 2 else _message(entry))


def _batch(entry: StoredEntry) -> dict[str, FieldValue]:
    header = entry.header
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence if header.base_sequence >= 0 else header.base_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": OptionalLong(header.base_timestamp if header.has_delete_horizon else None),
        "position": entry.position,
        _timestamp_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec_name(header),
        "crc": header.crc,
        "isvalid": entry.is_valid,
    }


def _message(entry: StoredEntry) -> dict[str, FieldValue]:
    header = entry.header
    return {
        "offset": header.base_offset,
        "position": entry.position,
        _timestamp_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": codec_name(header),
        "crc": header.crc,
        "isvalid": entry.is_valid,
    }


def _timestamp_name(header: BatchHeader) -> str:
    kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
    return _TIMESTAMP_NAMES[kind if header.magic else TimestampType.NONE]


def _record_lines(entry: StoredEntry, options: LogDumpOptions) -> Iterator[Finding]:
    try:
        for record in records_of(entry, size_max=options.entry_bytes_max):
            fields = _record(entry, record) if options.record_metadata else {}
            if entry.header.is_control:
                fields |= _control(record)
            elif options.print_data:
                fields |= _data(record, options.decoder)
            yield DumpLine(LineKind.RECORD, fields)
    except CorruptRecordsError as error:
        yield Damage(entry.position, error.message)


def _record(entry: StoredEntry, record: Record) -> dict[str, FieldValue]:
    header = entry.header
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = next_sequence(sequence, record.offset - header.base_offset)
    return {
        "offset": record.offset,
        "position": entry.position,
        _TIMESTAMP_NAMES[record.timestamp_type]: record.timestamp,
        "isvalid": entry.is_valid,
        "keysize": -1 if record.key is None else len(record.key),
        "valuesize": -1 if record.value is None else len(record.value),
        "magic": header.magic,
        "compresscodec": codec_name(header),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "sequence": sequence,
        "isTransactional": header.is_transactional,
        "headerKeys": tuple(name for name, _ in record.headers),
    }


def _control(record: Record) -> dict[str, FieldValue]:
    """What a control record says, as far as its bytes go."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _CONTROL_KEY.size:
        return {"controlType": None}
    kind = _CONTROL_KEY.unpack_from(key)[1]
    if kind not in _CONTROL_NAMES or len(value) < _MARKER_VALUE.size:
        return {"controlType": kind}
    return {"endTxnMarker": _CONTROL_NAMES[kind], "coordinatorEpoch": _MARKER_VALUE.unpack_from(value)[1]}


def _data(record: Record, decoder: RecordDecoder | None) -> dict[str, FieldValue]:
    key, value = (record.key, record.value) if decoder is None else decoder(record.key, record.value)
    return {"key": key, "payload": value}
