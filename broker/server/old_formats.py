"""Fetched batches for clients that know only message sets (Fetch 0 to 3), within bounds.

Conversion unpacks batches and builds them anew, record by record, so it runs in a thread. It goes batch by
batch and stops once it has as many bytes as the client takes, or the answer may have; besides those, memory
holds the batches as stored and one of them unpacked. What was left out is fetched next: who asks hears with
which partition to begin then.

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
UNPACKED_MAX = 128 << 20
"""Bytes that a batch unpacks to at most, unless it is stored in more."""
_UNREADABLE = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What clients hear of damaged files that are older than KAFKA_STORAGE_ERROR."""


class StoredAnswer(NamedTuple):
    """One partition's answer with records as stored; `size_max` is what its client takes, `place` where the
    partition stands in the request.
    """

    place: int
    topic: str
    answer: PartitionData
    records: FileRange
    size_max: int


class Converted(NamedTuple):
    """What became of some answers."""

    without_any: list[StoredAnswer]
    """Their stored records hold nothing that the client could be told of."""
    left_out_from: int | None
    """The place of the first that got nothing because others had used up the answer's bytes."""


async def convert(
    answers: Sequence[StoredAnswer],
    version: int,
    slots: asyncio.Semaphore,
    *,
    bytes_max: int,
    batch_size_max: int,
) -> Converted:
    """Replace the records of the answers, once there is a slot, one after the other until they have
    `bytes_max` in all; a batch may come on top. An error goes into the answer it concerns.
    """
    for stored in answers:
        stored.records.pin()
    try:
        async with slots:
            return await asyncio.to_thread(_convert_all, answers, version, bytes_max, batch_size_max)
    finally:
        for stored in answers:
            stored.records.release()


def _convert_all(
    answers: Sequence[StoredAnswer], version: int, bytes_max: int, batch_size_max: int
) -> Converted:
    left, without_any, left_out_from = bytes_max, [], None
    for stored in answers:
        answer = stored.answer
        answer.records = b""
        if left <= 0:
            left_out_from = stored.place if left_out_from is None else left_out_from
            continue
        try:
            converted = _converted(stored, version, left, batch_size_max)
        except ProtocolError as error:
            answer.error_code = _UNREADABLE if isinstance(error, CorruptRecordsError) else error.code
        except StorageError:
            answer.error_code = _UNREADABLE
        else:
            answer.records = converted
            left -= len(converted)
            if not converted:
                without_any.append(stored)
    return Converted(without_any, left_out_from)


def _converted(stored: StoredAnswer, version: int, left: int, batch_size_max: int) -> bytes:
    """One partition's message set, up to the batch that uses up `left` or what the client takes. Before
    version 3 it is cut at the latter, as such clients expect.
    """
    records, size_max = stored.records, stored.size_max
    converted = from_batches(
        records.read(),
        1 if version >= _MAGIC_1_FROM else 0,
        size_max=max(batch_size_max, min(EXPANSION_MAX * batch_size_max, UNPACKED_MAX)),
        first_offset=records.first_offset,
        answer_size_max=min(size_max, left),
    )
    return converted if version == CONVERTED_TO else converted[:size_max]
