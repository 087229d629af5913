"""Fetched batches for clients that know only message sets (Fetch 0 to 3), within bounds.

Conversion unpacks batches and builds them anew, record by record, so it runs in a thread. It goes batch by
batch and stops once it has as many bytes as the client takes; besides those, memory holds the batches as
stored and one of them unpacked. What was left out is fetched next.

Such clients read on behind the last message they got, so an answer without any would leave them where they
are for ever. Whoever asks has therefore to go on behind what holds nothing for them: markers of transactions
and batches that compaction emptied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError, StorageError
from broker.records.legacy import from_batches
from broker.storage.file_range import FileRange
from broker.wire.messages.fetch import PartitionData

CONVERTED_TO = 3
"""Last version of Fetch whose answers are message sets."""
_MAGIC_1_FROM = 2
PASSED_OVER_BYTES = 1 << 20
"""How much is looked at in one step where the last held nothing for the client."""
STEPS_MAX = 256
"""So many such steps are made for one request."""
EXPANSION_MAX = 64
"""How many times the largest batch a batch may unpack to while it is converted."""
_UNREADABLE = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What clients hear of damaged files that are older than KAFKA_STORAGE_ERROR."""


class StoredAnswer(NamedTuple):
    """One partition's answer with records as stored; `size_max` is what its client takes."""

    topic: str
    answer: PartitionData
    records: FileRange
    size_max: int


async def convert(
    answers: Sequence[StoredAnswer], version: int, *, bytes_max: int, batch_size_max: int
) -> list[StoredAnswer]:
    """Replace the records of the answers, `bytes_max` in all; an error goes into the answer it concerns.

    Returns those whose stored records hold nothing that their client could be told of.
    """
    for stored in answers:
        stored.records.pin()
    try:
        return await asyncio.to_thread(_convert_all, answers, version, bytes_max, batch_size_max)
    finally:
        for stored in answers:
            stored.records.release()


def _convert_all(
    answers: Sequence[StoredAnswer], version: int, bytes_max: int, batch_size_max: int
) -> list[StoredAnswer]:
    left, without_any = bytes_max, []
    for stored in answers:
        _, answer, records, size_max = stored
        answer.records = b""
        if left <= 0:
            continue
        try:
            converted = _converted(records, version, min(size_max, left), EXPANSION_MAX * batch_size_max)
        except ProtocolError as error:
            answer.error_code = _UNREADABLE if isinstance(error, CorruptRecordsError) else error.code
        except StorageError:
            answer.error_code = _UNREADABLE
        else:
            answer.records = converted
            left -= len(converted)
            if not converted:
                without_any.append(stored)
    return without_any


def _converted(records: FileRange, version: int, size_max: int, unpacked_size_max: int) -> bytes:
    """One partition's message set; before version 3 cut at its limit, as such clients expect."""
    converted = from_batches(
        records.read(),
        1 if version >= _MAGIC_1_FROM else 0,
        size_max=unpacked_size_max,
        first_offset=records.first_offset,
        answer_size_max=size_max,
    )
    return converted if version == CONVERTED_TO else converted[:size_max]
