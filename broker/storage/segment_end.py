"""The last batch of a segment that is not appended to, by its index and few headers."""

from __future__ import annotations

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader
from broker.storage.segment import Segment


def last_header(segment: Segment) -> BatchHeader | None:
    """The header of the last batch; None when the segment is empty or cannot be read up to its end. Raises
    StorageError.
    """
    entry = segment.offsets.last() if segment.offsets.plausible(segment.size) else None
    last = None
    try:
        for _, header in segment.headers(entry.position if entry else 0):
            last = header
    except CorruptRecordsError:
        return None
    return last
