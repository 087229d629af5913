"""Transactions as a pass of the cleaner meets them, batch by batch in the order of offsets. Pure.

Records of an aborted transaction go at once. The marker that ended a transaction goes only once nothing of
the transaction is left: a pass that meets none of its batches gives the marker a time to stay on (KIP-534), a
later one takes it away. A marker of other kinds than commit and abort stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.records.batch import BatchHeader
from broker.records.control import MarkerType, read_marker
from broker.storage.transactions import AbortedTransaction
from broker.types import Buffer


class Transactions:
    """What is known of the transactions around the current batch."""

    def __init__(self, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self._upcoming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        self._committing: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch, which is no control batch, belong to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_through(header.last_offset)
        aborted = self._aborting.get(header.producer_id)
        if aborted is not None and aborted.last_offset >= header.base_offset:
            self._with_batches.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def is_spent(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether this control batch is no longer needed: it is empty, or nothing of its transaction was met.

        Raises CorruptRecordsError.
        """
        self._begin_through(header.last_offset)
        if not header.record_count:
            return True
        marker = read_marker(batch, header)
        if marker is None:
            return False
        if marker.type is MarkerType.COMMIT:
            was_met = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not was_met
        aborted = self._aborting.pop(header.producer_id, None)
        if aborted is None or header.producer_id not in self._with_batches:
            return True
        self._with_batches.discard(header.producer_id)
        self._kept.append(aborted)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """The entries that the index of the segment just written needs: of markers whose transactions still
        had batches.
        """
        kept, self._kept = self._kept, []
        return kept

    def _begin_through(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1].first_offset <= offset:
            entry = self._upcoming.pop()
            self._aborting[entry.producer_id] = entry
