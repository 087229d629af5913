"""Aborted transactions as fetch answers name them, and which batches are theirs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.records.batch import BatchHeader
from broker.wire.messages.fetch import PartitionData


class AbortedTransaction(NamedTuple):
    """A transaction that did not happen: batches of the producer from the offset on, up to its marker."""

    producer_id: int
    first_offset: int


def aborted_transactions(answer: PartitionData) -> tuple[AbortedTransaction, ...]:
    """Those that the answer names."""
    return tuple(
        AbortedTransaction(transaction.producer_id, transaction.first_offset)
        for transaction in answer.aborted_transactions or ()
    )


class AbortedBatches:
    """A walk along the batches of one answer that tells which belong to aborted transactions."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._pending = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def includes(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to one; to be asked in the order of the log.

        Batches without transaction may be passed over, markers may not: a producer's marker belongs to none,
        and ends its producer's.
        """
        while self._pending and self._pending[-1].first_offset <= header.last_offset:
            self._aborting.add(self._pending.pop().producer_id)
        if header.is_control:
            self._aborting.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._aborting

    def rest(self) -> tuple[AbortedTransaction, ...]:
        """What counts for a walk that goes on from here: those that have not ended."""
        begun = (AbortedTransaction(producer_id, 0) for producer_id in self._aborting)
        return (*begun, *reversed(self._pending))
