"""What was refused of producers that number their batches and have several under way.

A producer sends the next batch before it hears of the one before. When that one is refused for now, because
the node does not lead at this moment or its disk is full, and the next one comes a moment later, when it
could be taken, it is out of turn through no fault of the producer's. Told OUT_OF_ORDER_SEQUENCE_NUMBER,
producers give their identity up and send everything that was not acknowledged under a new one, also what is
in the log: then it is there twice. And if the log knows nothing of the producer yet, the next batch would be
taken, and the one before it never again. So a batch that directly follows one that was refused for now is
refused for the same reason, and the producer sends both again in order.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from broker.errors import CorruptRecordsError, ProtocolError
from broker.records.batch import BatchHeader, iterate_batches, next_sequence
from broker.types import Buffer

PRODUCERS_MAX = 1_000
"""Of more, the refusal that is oldest is forgotten."""


class _Refusal(NamedTuple):
    """Why a batch was refused, and what its successor is numbered."""

    producer_epoch: int
    next_sequence: int
    error: ProtocolError


class RefusedBatches:
    """The latest refusals of one partition, by producer. False when there are none."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: OrderedDict[int, _Refusal] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def require_in_turn(self, records: Buffer) -> None:
        """Raises the error that the batch before these was refused with."""
        headers = _headers(records)
        before = self._refusals.get(headers[0].producer_id) if headers else None
        if before is not None and before[:2] == (headers[0].producer_epoch, headers[0].base_sequence):
            raise before.error

    def refused(self, records: Buffer, error: ProtocolError) -> None:
        """These were not appended."""
        headers = _headers(records)
        if not headers or headers[0].producer_id < 0:
            return
        producer_id, last = headers[0].producer_id, headers[-1]
        self._refusals.pop(producer_id, None)
        if error.code.retriable:
            following = next_sequence(last.last_sequence, 1)
            self._refusals[producer_id] = _Refusal(last.producer_epoch, following, error)
        if len(self._refusals) > PRODUCERS_MAX:
            self._refusals.popitem(last=False)

    def appended(self, records: Buffer) -> None:
        """Whoever sent these goes on from there."""
        if headers := _headers(records):
            self._refusals.pop(headers[0].producer_id, None)


def _headers(records: Buffer) -> list[BatchHeader]:
    try:
        return [header for _, header in iterate_batches(records)]
    except CorruptRecordsError:
        return []
