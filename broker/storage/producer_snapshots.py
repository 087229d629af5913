"""The content of a `.snapshot`: every producer of a log as of the offset that names the file.

Layout (big-endian): `version int16 = 1 | crc uint32 (CRC-32C of what follows) | count int32 | entries`, an
entry being `producerId int64, producerEpoch int16, lastSequence int32, lastOffset int64, offsetDelta int32,
timestamp int64, coordinatorEpoch int32, currentTxnFirstOffset int64`. Kafka writes one entry per producer,
its newest append; here all remembered ones are written, oldest first: Kafka's reader lets the last entry of a
producer win, so both read each other's files. A producer of which only a marker was seen has one entry whose
sequence and offset are -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from crc32c import crc32c

from broker.errors import CorruptRecordsError
from broker.storage.producer_entry import NO_EPOCH, SEQUENCE_MASK, ProducerEntry, RememberedAppend
from broker.storage.transactions import NO_OFFSET, Transaction

VERSION = 1
HEADER = Struct(">hIi")
CHECKED_FROM = 6
"""Position of the first byte that the checksum covers."""
ENTRY = Struct(">qhiqiqiq")


def encode(entries: Mapping[int, ProducerEntry]) -> bytes:
    """The file's content for producers by their ids."""
    packed = b"".join(part for producer_id, entry in entries.items() for part in _packed(producer_id, entry))
    counted = (len(packed) // ENTRY.size).to_bytes(4, "big") + packed
    crc: int = crc32c(counted)
    return VERSION.to_bytes(2, "big") + crc.to_bytes(4, "big") + counted


def decode(data: bytes) -> dict[int, ProducerEntry]:
    """Producers by their ids. Raises CorruptRecordsError."""
    if len(data) < HEADER.size:
        raise CorruptRecordsError("torn producer snapshot")
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptRecordsError(f"producer snapshot of version {version}")
    if crc != crc32c(data[CHECKED_FROM:]) or len(data) != HEADER.size + count * ENTRY.size:
        raise CorruptRecordsError("damaged producer snapshot")
    entries: dict[int, ProducerEntry] = {}
    for packed in ENTRY.iter_unpack(data[HEADER.size :]):
        _add(entries, *packed)
    return entries


def _packed(producer_id: int, entry: ProducerEntry) -> Iterable[bytes]:
    for append in entry.appends or (None,):
        yield ENTRY.pack(
            producer_id,
            entry.epoch,
            -1 if append is None else append.last_sequence,
            NO_OFFSET if append is None else append.last_offset,
            0 if append is None else append.last_offset - append.first_offset,
            entry.last_heard_ms if append is None else append.timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )


def _add(
    entries: dict[int, ProducerEntry],
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> None:
    entry = entries.get(producer_id)
    if entry is None or entry.epoch != epoch:
        entry = entries[producer_id] = ProducerEntry(epoch, timestamp)
    entry.last_heard_ms = timestamp
    entry.coordinator_epoch = max(coordinator_epoch, NO_EPOCH)
    if transaction_first_offset < 0:
        entry.transaction = None
    elif entry.transaction_first_offset != transaction_first_offset:
        entry.transaction = Transaction(transaction_first_offset)
    if last_sequence >= 0:
        first_sequence = (last_sequence - offset_delta) & SEQUENCE_MASK
        first_offset = last_offset - offset_delta
        entry.remember(RememberedAppend(first_sequence, last_sequence, first_offset, last_offset, timestamp))
