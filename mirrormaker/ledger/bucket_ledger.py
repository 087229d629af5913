"""The ledger of an exactly-once route: its pages are written in the transactions of their buckets.

So a page is there when the records are that it tells of, and only then; and nobody but a bucket's owner
writes pages of it, or makes them small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from broker.types import TopicPartition
from mirrormaker.flow.books import BooksStanding
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.ledger.recorder import Due, LedgerRecorder

LEDGER_AT = TopicPartition(LEDGER_TOPIC, 0)


class Whole(Protocol):
    """The ledger of the route."""

    recorder: LedgerRecorder
    upkeep: dict[TopicPartition, tuple[Entry, ...]]
    """By source, what keeps the ledger small and is to be written along with its next pages."""

    @property
    def standing(self) -> BooksStanding: ...

    def refuse(self) -> None:
        """The mirror has no right to write it."""
        ...

    def tell_written(self) -> None:
        """Records of it have been written."""
        ...

    def tell_kept_up(self, records: int) -> None:
        """So many of `upkeep` have been."""
        ...


class BucketLedger:
    """What of it is written in transactions of one bucket (`flow.books.BucketBooks`)."""

    def __init__(self, whole: Whole) -> None:
        self._whole = whole
        self._due: Due | None = None
        self._kept_up: dict[TopicPartition, tuple[Entry, ...]] = {}

    @property
    def at(self) -> TopicPartition:
        """See `BucketBooks`; so for the others."""
        return LEDGER_AT

    @property
    def standing(self) -> BooksStanding:
        return self._whole.standing

    def is_due(self, sources: Iterable[TopicPartition]) -> bool:
        return self._whole.recorder.is_due(sources)

    def due(self, positions: Mapping[TopicPartition, LanePositions]) -> tuple[Entry, ...]:
        whole = self._whole
        whole.recorder.advance(positions)
        self._due = whole.recorder.due(positions)
        self._kept_up = {source: whole.upkeep[source] for source in positions if source in whole.upkeep}
        return (*self._due.records, *(entry for each in self._kept_up.values() for entry in each))

    def settled(self) -> None:
        if self._due is not None:
            self._whole.recorder.settled(self._due)
            if self._due.records or self._kept_up:
                self._whole.tell_written()
        if self._kept_up:
            self._whole.tell_kept_up(sum(map(len, self._kept_up.values())))
        for source, entries in self._kept_up.items():
            if self._whole.upkeep.get(source) is entries:
                del self._whole.upkeep[source]
        self._due, self._kept_up = None, {}

    def refused(self) -> None:
        self._whole.refuse()
