"""What a log remembers of idempotent producers: the epoch and the last few appends of each.

Rules (Kafka's): a batch whose sequence numbers were appended already is a duplicate and is answered with its
first offset; the first batch of a newer epoch starts at 0, any other follows its predecessor (sequences wrap
from 2^31-1 to 0); an older epoch is refused. A producer that is not known, or was forgotten, may start
anywhere.

One append counts as one however many batches it carries, so that whoever sends several batches of a partition
in one request can still repeat the last five requests, one of which may lie in two parts where leaders
changed in the middle of it. What is read back from the log no longer shows which batches came together:
neighbours in offset and sequence are taken as one, up to `REPLAYED_RECORDS_MAX` records. So a repeat may be
part of what is remembered as one append, and is a duplicate if all of its sequences lie within what is
remembered.

A transactional batch opens its producer's transaction on this log, a marker ends it: none of an older
producer epoch, and none of a coordinator older than the last one, which was deposed. What is read back, or
comes from a leader, is taken as it is. While a transaction is open its producer writes nothing outside of it,
and is not forgotten. What a coordinator writes as part of a transaction has no sequence numbers: it opens the
transaction and is otherwise not remembered.

The timestamp is when the producer was last heard of by this node's clock, not a record's: mirrored history
carries timestamps of years ago, and would be forgotten at once. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import BatchHeader, next_sequence
from broker.records.control import Marker, MarkerType
from broker.storage import producer_snapshots
from broker.storage.producer_entry import Original, ProducerEntry, RememberedAppend
from broker.storage.transactions import AbortedTransaction, Transactions

REPLAYED_RECORDS_MAX = 1 << 20
EXPIRATION_MS = 86_400_000


class ProducerStates:
    """All producers of one log."""

    __slots__ = ("_entries", "transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = Transactions()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer of this epoch has a transaction open here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction is not None and entry.epoch == epoch

    def check(self, header: BatchHeader) -> Original | None:
        """None for a batch that may be appended, or where it was stored before.

        Raises ProtocolError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
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
                    if before.is_transactional:
                        _check_belongs(header)
                if verdict is None:
                    ahead[header.producer_id] = header
            verdicts.append(verdict)
        return verdicts

    def appended(self, header: BatchHeader, first_offset: int, now_ms: int, *, joins: bool = False) -> None:
        """Remember a batch that was stored at `first_offset`; `joins`: it came in the same append as the one
        before it.
        """
        entry = self._entry(header, now_ms)
        if entry.transaction is None and header.is_transactional:
            entry.transaction = self.transactions.begin(first_offset)
        last_offset = first_offset + header.last_offset_delta
        appends = entry.appends
        first_sequence, last_sequence = header.base_sequence, header.last_sequence
        if joins and appends and appends[-1].followed_by(first_sequence, first_offset):
            before = appends.pop()
            first_sequence, first_offset = before.first_sequence, before.first_offset
        entry.remember(RememberedAppend(first_sequence, last_sequence, first_offset, last_offset, now_ms))

    def appended_together(self, headers: Iterable[BatchHeader], first_offset: int, now_ms: int) -> None:
        """Remember those batches of producers that one append stored from `first_offset` on."""
        seen = set()
        for header in headers:
            if header.producer_id >= 0:
                self.appended(header, first_offset, now_ms, joins=header.producer_id in seen)
                seen.add(header.producer_id)
            first_offset += header.last_offset_delta + 1

    def check_unsequenced(self, header: BatchHeader) -> None:
        """Whether a coordinator's batch may join its producer's transaction. Raises ProtocolError
        INVALID_PRODUCER_EPOCH.
        """
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _stale_epoch(header, entry)

    def joined(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """A coordinator's batch was stored at `first_offset` as part of its producer's transaction."""
        entry = self._entry(header, now_ms)
        if entry.transaction is None:
            entry.transaction = self.transactions.begin(first_offset)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Whether a transaction's marker may be appended.

        Raises ProtocolError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.epoch:
            raise ProtocolError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of epoch {producer_epoch} for producer {producer_id}, the log has {entry.epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise ProtocolError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of coordinator epoch {coordinator_epoch} for producer {producer_id}, "
                f"the last one was of {entry.coordinator_epoch}",
            )

    def marked(self, header: BatchHeader, marker: Marker, now_ms: int) -> AbortedTransaction | None:
        """Remember a marker that is in the log; the transaction that it aborts, if any was open."""
        entry = self._entry(header, now_ms)
        entry.coordinator_epoch = marker.coordinator_epoch
        transaction, entry.transaction = entry.transaction, None
        if transaction is None:
            return None
        stable = self.transactions.end(transaction, header.base_offset)
        if marker.type is MarkerType.COMMIT:
            return None
        return AbortedTransaction(header.producer_id, transaction.first_offset, header.base_offset, stable)

    def replay(
        self, header: BatchHeader, now_ms: int, marker: Marker | None = None
    ) -> AbortedTransaction | None:
        """Remember a batch that is in the log, on recovery and on a follower; `marker` is what it holds if it
        is one. The transaction that it aborts, if any.
        """
        if header.producer_id < 0:
            return None
        if header.is_control:
            if not header.record_count:  # compaction took the marker; what is left is the producer's epoch
                self._entry(header, now_ms)
            return None if marker is None else self.marked(header, marker, now_ms)
        if header.base_sequence < 0:
            if header.is_transactional:
                self.joined(header, header.base_offset, now_ms)
            return None
        entry = self._entry(header, now_ms)
        last = entry.appends[-1] if entry.appends else None
        joins = last is not None and header.last_offset - last.first_offset < REPLAYED_RECORDS_MAX
        self.appended(header, header.base_offset, now_ms, joins=joins)
        return None

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> int:
        """Forget producers not heard of for so long, but for those with an open transaction; how many
        went.
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction is None and now_ms - entry.last_heard_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._replace({})

    def take_over(self, other: ProducerStates) -> None:
        """Be what `other` is, which is no longer used."""
        self._entries, self.transactions = other._entries, other.transactions

    def snapshot(self) -> bytes:
        """The content of a snapshot file."""
        return producer_snapshots.encode(self._entries)

    def load(self, data: bytes) -> None:
        """Replace everything by a snapshot file's content. Raises CorruptRecordsError, and then nothing has
        changed.
        """
        self._replace(producer_snapshots.decode(data))

    def _replace(self, entries: dict[int, ProducerEntry]) -> None:
        self._entries = entries
        self.transactions = Transactions(
            entry.transaction for entry in entries.values() if entry.transaction is not None
        )

    def _entry(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.appends.clear()
        entry.last_heard_ms = now_ms
        return entry


def _check(header: BatchHeader, entry: ProducerEntry) -> Original | None:
    if header.producer_epoch < entry.epoch:
        raise _stale_epoch(header, entry)
    if header.producer_epoch != entry.epoch or header.base_sequence != next_sequence(entry.last_sequence, 1):
        if (original := entry.original(header)) is not None:
            return original
        _check_follows(header, entry.epoch, entry.last_sequence)
    if entry.transaction is not None:
        _check_belongs(header)
    return None


def _stale_epoch(header: BatchHeader, entry: ProducerEntry) -> ProtocolError:
    return ProtocolError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {header.producer_epoch} of producer {header.producer_id}, the log has {entry.epoch}",
    )


def _check_follows(header: BatchHeader, epoch: int, last_sequence: int) -> None:
    expected = next_sequence(last_sequence, 1) if header.producer_epoch == epoch else 0
    if header.base_sequence != expected:
        raise ProtocolError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {header.base_sequence} of producer {header.producer_id}, expected {expected}",
        )


def _check_belongs(header: BatchHeader) -> None:
    """Whether a batch of a producer that has a transaction open is part of that."""
    if not header.is_transactional:
        raise ProtocolError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open, and the batch is not part of it",
        )
