"""The indexes of aborted transactions against what the log of their partition says, in the walk over it.

Every abort marker whose transaction has records in the log must be indexed in the marker's segment, or those
records would be read as committed; and every entry must be for an abort marker that is there. Where a
transaction began may be gone from the log, so an entry may name an earlier offset than what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader
from broker.records.control import MARKER_BYTES_MAX, MarkerType, read_marker
from broker.storage.dump_line import Damage
from broker.storage.stored_entries import StoredEntry
from broker.storage.transactions import AbortedTransaction


class TransactionCheck:
    """One partition's transactions; sees its entries in order, and is asked at the end of each segment."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._markers: dict[int, tuple[int, int | None]] = {}

    def see(self, entry: StoredEntry) -> None:
        """Note a sound entry of the log. Of a marker that cannot be read others tell."""
        header = entry.header
        if header.producer_id < 0:
            return
        if header.is_control:
            self._see_marker(header, entry)
        elif header.is_transactional and header.record_count:
            self._open.setdefault(header.producer_id, header.base_offset)

    def _see_marker(self, header: BatchHeader, entry: StoredEntry) -> None:
        try:
            marker = read_marker(entry.data, header) if header.size <= MARKER_BYTES_MAX else None
        except CorruptRecordsError:
            return
        if marker is None:
            return
        first_offset = self._open.pop(header.producer_id, None)
        if marker.type is MarkerType.ABORT:
            self._markers[header.base_offset] = (header.producer_id, first_offset)

    def finish_segment(self, index: Iterator[AbortedTransaction]) -> Iterator[Damage]:
        """What is wrong with the index of the segment whose last entry was seen."""
        markers, self._markers = self._markers, {}
        for entry in index:
            producer_id, first_offset = markers.pop(entry.last_offset, (None, None))
            if producer_id != entry.producer_id:
                yield Damage(
                    None,
                    f"no abort marker of producer {entry.producer_id} is at offset {entry.last_offset}",
                )
            elif first_offset is not None and entry.first_offset > first_offset:
                yield Damage(
                    None,
                    f"the transaction of producer {producer_id} that was aborted at offset "
                    f"{entry.last_offset} has records from offset {first_offset}, not {entry.first_offset}",
                )
        for offset, (producer_id, first_offset) in markers.items():
            if first_offset is not None:
                yield Damage(
                    None,
                    f"the transaction of producer {producer_id} from offset {first_offset}, aborted at "
                    f"offset {offset}, is missing",
                )
