"""Which records outlive a pass of the cleaner, entry by entry of the log. Pure. The rules are Kafka's:

- What lies at or above `end_offset`, which the map does not cover, stays as it is.
- Of a key only the newest record stays. One without a key goes.
- A tombstone stays until its batch's delete horizon: the first pass that keeps it sets the horizon,
  `delete.retention.ms` from then (KIP-534). In magic 0 and 1, which have no place for one, it stays while its
  segment is not older by that much than the newest that was clean before.
- Records of aborted transactions go; `aborted` says when the markers may.
- The batch with the last sequence number of a producer stays though all of its records go, as an empty one;
  so does the marker that is all a producer left, and the last batch below `end_offset`, so that a reader gets
  across.

- A batch that unpacks to too much (`unpacking`) stays as it is, unopened. As it may hold older records of any
  key, tombstones behind it stay for as long as it does: without them those records would be back.

A batch of which everything stays is given back as it is. Messages of magic 0 and 1 stay in their format; a
compressed one is written anew with the messages that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import ge
from typing import NamedTuple

from broker.errors import ExpansionError
from broker.records.batch import DELETE_HORIZON_FLAG, BatchHeader
from broker.records.excerpt import OpenedBatch, emptied, excerpt, open_batch
from broker.records.message_set import build_message_set, message_codec, read_message
from broker.storage.compaction.aborted import Transactions
from broker.storage.compaction.offset_map import OffsetMap
from broker.storage.compaction.unpacking import unpacked_max
from broker.types import Buffer

GONE = b""
"""What is left of an entry that goes as a whole."""


class ProducerEnd(NamedTuple):
    """The end of what a log holds of one producer: its epoch, and the last offset of its newest data batch,
    None when there is no such batch.
    """

    epoch: int
    last_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one pass goes by. Times in ms since the epoch."""

    newest: OffsetMap
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, ProducerEnd]
    size_max: int
    """What a batch may unpack to, in bytes."""

    @property
    def delete_horizon_ms(self) -> int:
        """The horizon of tombstones and markers that get theirs in this pass."""
        return self.now_ms + self.delete_retention_ms


class BatchFilter:
    """One pass over a log, entry by entry in the order of offsets."""

    __slots__ = ("_has_unopened", "_rules", "_transactions")

    def __init__(self, rules: Rules, transactions: Transactions) -> None:
        self._rules = rules
        self._transactions = transactions
        self._has_unopened = False
        """Whether a batch below may hold records of any key."""

    def remainder(self, entry: Buffer, header: BatchHeader, *, keeps_legacy_tombstones: bool) -> Buffer:
        """What is left of the entry: itself, a smaller one, or GONE. Raises CorruptRecordsError."""
        if header.base_offset >= self._rules.end_offset:
            return entry
        try:
            return self._of_entry(entry, header, keeps_legacy_tombstones)
        except ExpansionError:
            self._has_unopened = True
            return entry

    def _of_entry(self, entry: Buffer, header: BatchHeader, keeps_legacy_tombstones: bool) -> Buffer:
        if header.magic < 2:
            return self._of_messages(entry, header, keeps_legacy_tombstones or self._has_unopened)
        if header.is_control:
            return self._of_marker(entry, header)
        if self._transactions.is_aborted(header):
            return self._without_records(entry, header)
        return self._of_batch(entry, header)

    def _of_batch(self, batch: Buffer, header: BatchHeader) -> Buffer:
        if not header.record_count:
            return self._without_records(batch, header)
        opened = open_batch(batch, header, size_max=unpacked_max(header, self._rules.size_max))
        kept = self._kept(opened)
        if not any(kept):
            return self._without_records(batch, header)
        has_tombstones = None in opened.columns.values and any(
            is_kept and value is None for is_kept, value in zip(kept, opened.columns.values, strict=True)
        )
        if has_tombstones and not header.has_delete_horizon:
            return excerpt(opened, kept, delete_horizon_ms=self._rules.delete_horizon_ms)
        return batch if all(kept) else excerpt(opened, kept)

    def _kept(self, opened: OpenedBatch) -> list[bool]:
        """Which records of a batch stay."""
        header, columns, rules = opened.header, opened.columns, self._rules
        keys = [key for key in columns.keys if key is not None]
        if len(keys) == len(columns.keys):
            kept = list(map(ge, columns.offsets, rules.newest.newest(keys)))
        else:
            newest = rules.newest.newest(keys)
            kept = [
                key is not None and offset >= next(newest)
                for key, offset in zip(columns.keys, columns.offsets, strict=True)
            ]
        is_over = header.has_delete_horizon and rules.now_ms >= header.base_timestamp
        if is_over and not self._has_unopened and None in columns.values:
            return [
                is_kept and value is not None for is_kept, value in zip(kept, columns.values, strict=True)
            ]
        return kept

    def _of_marker(self, batch: Buffer, header: BatchHeader) -> Buffer:
        if not self._transactions.is_spent(batch, header):
            return batch
        if not header.record_count:
            return self._without_records(batch, header)
        if not header.has_delete_horizon:
            opened = open_batch(batch, header, size_max=self._rules.size_max)
            kept = [True] * header.record_count
            return excerpt(opened, kept, delete_horizon_ms=self._rules.delete_horizon_ms)
        if self._rules.now_ms < header.base_timestamp:
            return batch
        return self._without_records(batch, header)

    def _without_records(self, batch: Buffer, header: BatchHeader) -> Buffer:
        if not self._is_needed(header):
            return GONE
        is_empty = not header.record_count and not header.attributes & DELETE_HORIZON_FLAG
        return batch if is_empty else emptied(header)

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether the batch stays even when it is empty."""
        if header.next_offset == self._rules.end_offset:
            return True
        end = self._rules.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if end is None:
            return False
        if end.last_offset is None:
            return header.is_control and header.producer_epoch == end.epoch
        return header.last_offset == end.last_offset

    def _of_messages(self, entry: Buffer, header: BatchHeader, keeps_tombstones: bool) -> Buffer:
        records = read_message(entry, size_max=unpacked_max(header, self._rules.size_max))
        newest = self._rules.newest.newest([record.key or b"" for record in records])
        kept = [
            record
            for record, offset in zip(records, newest, strict=True)
            if record.key is not None
            and record.offset >= offset
            and (record.value is not None or keeps_tombstones)
        ]
        if len(kept) == len(records):
            return entry
        return build_message_set(kept, header.magic, message_codec(entry)) if kept else GONE
