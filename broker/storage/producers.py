"""What a log remembers of idempotent producers: the epoch and the last five appends of each.

Rules (Kafka's): a batch whose sequence numbers were appended already is a duplicate and is answered with its
first offset; the first batch of a newer epoch starts at 0, any other follows its predecessor (sequences wrap
from 2^31-1 to 0); an older epoch is refused. A producer that is not known, or was forgotten, may start
anywhere.

One append counts as one however many batches it carries, so that whoever sends several batches of a partition
in one request can still repeat the last five requests. What is read back from the log no longer shows which
batches came together: neighbours in offset and sequence are taken as one, up to `REPLAYED_RECORDS_MAX`
records. So a repeat may be part of what is remembered as one append, and is a duplicate if all of its
sequences lie within what is remembered.

Snapshot file (big-endian): `version int16 = 1 | crc uint32 (CRC-32C of what follows) | count int32 |
entries`, an entry being `producerId int64, producerEpoch int16, lastSequence int32, lastOffset int64,
offsetDelta int32, timestamp int64, coordinatorEpoch int32, currentTxnFirstOffset int64`. Kafka writes one
entry per producer, its newest append; here all remembered ones are written, oldest first: Kafka's reader lets
the last entry of a producer win, so both read each other's files.

The timestamp is when the producer was last heard of by this node's clock, not a record's: mirrored history
carries timestamps of years ago, and would be forgotten at once. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import SEQUENCE_LIMIT, BatchHeader, next_sequence

APPENDS_REMEMBERED = 5
REPLAYED_RECORDS_MAX = 1 << 20
EXPIRATION_MS = 86_400_000
NO_OFFSET = -1
SNAPSHOT_VERSION = 1

_SNAPSHOT_HEADER = Struct(">hIi")
_CRC_END = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SEQUENCE_MASK = SEQUENCE_LIMIT - 1


class RememberedAppend(NamedTuple):
    """The records of one append: first and last sequence and offset, and when it came (ms)."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

    def offset_of(self, sequence: int) -> int | None:
        """Where the record of this sequence is, None when it is not in this append."""
        distance = (sequence - self.first_sequence) & _SEQUENCE_MASK
        return self.first_offset + distance if distance <= self.last_offset - self.first_offset else None

    def followed_by(self, sequence: int, offset: int) -> bool:
        return offset == self.last_offset + 1 and sequence == next_sequence(self.last_sequence, 1)


class Original(NamedTuple):
    """Where a duplicate was stored the first time, and when (ms)."""

    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer of the log."""

    epoch: int
    last_heard_ms: int
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_OFFSET
    appends: deque[RememberedAppend] = field(default_factory=lambda: deque(maxlen=APPENDS_REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.appends[-1].last_sequence if self.appends else -1

    def original(self, header: BatchHeader) -> Original | None:
        """Where the batch was stored before, None when it was not or is no longer remembered."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = next_sequence(header.base_sequence, header.last_offset_delta)
        first_offset = None
        for append in self.appends:
            if first_offset is None:
                first_offset = append.offset_of(header.base_sequence)
            if first_offset is not None and (last_offset := append.offset_of(last_sequence)) is not None:
                return Original(first_offset, last_offset, append.timestamp)
        return None


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> Original | None:
        """None for a batch that may be appended, or where it was stored before.

        Raises ProtocolError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        return _check(header, entry)

    def check_all(self, headers: Iterable[BatchHeader]) -> list[Original | None]:
        """`check` for the batches of one append, each as if those before it were stored already."""
        verdicts: list[Original | None] = []
        ahead: dict[int, BatchHeader] = {}
        for header in headers:
            verdict = None
            if header.producer_id >= 0:
                if (before := ahead.get(header.producer_id)) is None:
                    verdict = self.check(header)
                else:
                    _check_follows(header, before.producer_epoch, before.last_sequence)
                if verdict is None:
                    ahead[header.producer_id] = header
            verdicts.append(verdict)
        return verdicts

    def appended(self, header: BatchHeader, first_offset: int, now_ms: int, *, joins: bool = False) -> None:
        """Remember a batch that was stored at `first_offset`; `joins`: it came in the same append as the one
        before it.
        """
        entry = self._entry(header, now_ms)
        if header.is_transactional and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = first_offset
        last_offset = first_offset + header.last_offset_delta
        appends = entry.appends
        first_sequence, last_sequence = header.base_sequence, header.last_sequence
        if joins and appends and appends[-1].followed_by(first_sequence, first_offset):
            before = appends.pop()
            first_sequence, first_offset = before.first_sequence, before.first_offset
        appends.append(RememberedAppend(first_sequence, last_sequence, first_offset, last_offset, now_ms))

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch that is in the log: on recovery, and on a follower."""
        if header.producer_id < 0:
            return
        if header.is_control:
            entry = self._entry(header, now_ms)
            entry.transaction_first_offset = NO_OFFSET
            return
        if header.base_sequence < 0:
            return
        entry = self._entry(header, now_ms)
        last = entry.appends[-1] if entry.appends else None
        joins = last is not None and header.last_offset - last.first_offset < REPLAYED_RECORDS_MAX
        self.appended(header, header.base_offset, now_ms, joins=joins)

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forget producers not heard of for so long, but for those with an open transaction; how many
        went.
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_heard_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._entries.clear()

    def snapshot(self) -> bytes:
        """The content of a snapshot file."""
        entries = b"".join(
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.epoch,
                append.last_sequence,
                append.last_offset,
                append.last_offset - append.first_offset,
                append.timestamp if append is not _NOTHING_APPENDED else entry.last_heard_ms,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
            for producer_id, entry in self._entries.items()
            for append in entry.appends or (_NOTHING_APPENDED,)
        )
        counted = (len(entries) // _SNAPSHOT_ENTRY.size).to_bytes(4, "big") + entries
        crc: int = crc32c(counted)
        return SNAPSHOT_VERSION.to_bytes(2, "big") + crc.to_bytes(4, "big") + counted

    def load(self, data: bytes) -> None:
        """Replace everything by a snapshot file's content. Raises CorruptRecordsError, and then nothing has
        changed.
        """
        if len(data) < _SNAPSHOT_HEADER.size:
            raise CorruptRecordsError("torn producer snapshot")
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise CorruptRecordsError(f"producer snapshot of version {version}")
        if (
            crc != crc32c(data[_CRC_END:])
            or len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size
        ):
            raise CorruptRecordsError("damaged producer snapshot")
        loaded: dict[int, ProducerEntry] = {}
        for packed in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size :]):
            _load_entry(loaded, *packed)
        self._entries = loaded

    def _entry(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.appends.clear()
        entry.last_heard_ms = now_ms
        return entry


_NOTHING_APPENDED = RememberedAppend(-1, -1, NO_OFFSET, NO_OFFSET, -1)
"""Stands for the appends of a producer of which only a transaction's marker was seen."""


def _check(header: BatchHeader, entry: ProducerEntry) -> Original | None:
    if header.producer_epoch < entry.epoch:
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {header.producer_epoch} of producer {header.producer_id}, the log has {entry.epoch}",
        )
    if not entry.appends and header.producer_epoch == entry.epoch:
        return None
    if header.producer_epoch == entry.epoch and header.base_sequence == next_sequence(entry.last_sequence, 1):
        return None
    if (original := entry.original(header)) is not None:
        return original
    _check_follows(header, entry.epoch, entry.last_sequence)
    return None


def _check_follows(header: BatchHeader, epoch: int, last_sequence: int) -> None:
    expected = next_sequence(last_sequence, 1) if header.producer_epoch == epoch else 0
    if header.base_sequence != expected:
        raise ProtocolError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {header.base_sequence} of producer {header.producer_id}, expected {expected}",
        )


def _load_entry(
    loaded: dict[int, ProducerEntry],
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> None:
    entry = loaded.get(producer_id)
    if entry is None or entry.epoch != epoch:
        entry = loaded[producer_id] = ProducerEntry(epoch, timestamp)
    entry.last_heard_ms = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_first_offset = transaction_first_offset
    if last_sequence >= 0:
        first_sequence = (last_sequence - offset_delta) & _SEQUENCE_MASK
        entry.appends.append(
            RememberedAppend(
                first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp
            )
        )
