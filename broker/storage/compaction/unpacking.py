"""How far the cleaner opens a batch. Pure.

What a batch claims to be costs memory only once it is opened, so the bounds are those of its header first and
of the uncompressed bytes then. They are the same for every log at any time, whatever its `max.message.bytes`
is: a batch that a pass left closed must not be open to a later one, see `batch_filter`.
"""

from __future__ import annotations

from broker.errors import ExpansionError
from broker.records.batch import BatchHeader

UNPACKED_MAX = 128 << 20
"""Bytes; as many as a topic takes at most (ops/adr/0006)."""
OLD_RATIO = 4
"""So much less of magic 0 and 1, whose messages take more memory apart."""
RECORDS_MAX = 1 << 20
"""Records of one batch: apart, each takes about 250 bytes."""


def unpacked_max(header: BatchHeader, size_max: int) -> int:
    """How many bytes an entry may unpack to where most may take `size_max`. One that is stored in more may
    have those: they are in memory already.

    Raises ExpansionError for too many records.
    """
    if header.record_count > RECORDS_MAX:
        raise ExpansionError(
            f"the batch at offset {header.base_offset} has {header.record_count} records, "
            f"{RECORDS_MAX} are opened"
        )
    return max(size_max if header.magic == 2 else size_max // OLD_RATIO, header.size)
