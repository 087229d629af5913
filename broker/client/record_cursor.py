"""From fetched batches to records, a bounded number at a time. Pure.

Control records are left out, those of aborted transactions when asked for committed ones only, and those that
a filter does not match. The
position counts all of them, so that it moves past what is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from broker.client.aborted import AbortedBatches
from broker.client.fetch import FetchedBatches
from broker.records.reader import FetchedBatch, read_shaped_batches
from broker.records.record import Header
from broker.records.record_filter import RecordFilter
from broker.records.record_shape import RecordShape


class ConsumerRecord(NamedTuple):
    """A record and where it came from. `timestamp` is in milliseconds, -1 where there is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]


class RecordCursor:
    """A walk over one answer. `position` is the offset after the records handed out so far."""

    def __init__(
        self,
        fetched: FetchedBatches,
        *,
        committed_only: bool,
        decoded_bytes_max: int,
        wanted: RecordFilter | None = None,
    ) -> None:
        """`decoded_bytes_max` bounds the uncompressed bytes of each batch."""
        self._wanted = wanted
        self.position = fetched.start_offset
        self.exhausted = False
        self._end = fetched.next_offset
        self._batches = read_shaped_batches(
            fetched.records,
            RecordShape(ConsumerRecord, prefix=fetched.topic_partition),
            start_offset=fetched.start_offset,
            size_max=decoded_bytes_max,
        )
        self._aborted = AbortedBatches(fetched.aborted if committed_only else ())
        self._records: Iterator[ConsumerRecord] = iter(())
        self._batch_end = fetched.start_offset

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """The next records, all of one batch; empty at the end only. Raises CorruptRecordsError."""
        while True:
            taken = list(islice(self._records, max_records))
            if taken:
                whole = len(taken) < max_records
                self.position = self._batch_end if whole else taken[-1].offset + 1
                return taken
            self.position = self._batch_end
            if not self._open_next():
                self.position = max(self.position, self._end)
                self.exhausted = True
                return []

    def _open_next(self) -> bool:
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._batch_end = batch.next_offset
        records = batch.records if self._is_visible(batch) else ()
        self._records = iter(records) if self._wanted is None else filter(self._is_wanted, records)
        return True

    def _is_wanted(self, record: ConsumerRecord) -> bool:
        assert self._wanted is not None
        return self._wanted.matches(record.key, record.value, record.headers)

    def _is_visible(self, batch: FetchedBatch[ConsumerRecord]) -> bool:
        """Consumers see no markers, and nothing of the transactions that were aborted."""
        header = batch.header
        return header is None or not (self._aborted.includes(header) or header.is_control)
