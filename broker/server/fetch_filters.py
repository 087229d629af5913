"""Fetches of clients that want some records only: what they do not want stays here.

A filter comes in a tagged field of Fetch, from clients that saw the feature `mirrormaker.fetch.filter`; an
answer tells in others behind which offset to go on, as it may hold no batch at all, the leader epoch of what
is before that, and how many bytes were saved. Looking into batches takes a thread, one of the few slots, and
the room of an answer, which are those of conversions for old clients. One answer looks at a few MiB; clients
come back for more.

Filters are for single fetches: sessions and followers are told of every batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.errors import ConfigurationError, ErrorCode, ProtocolError, StorageError
from broker.records.record_filter import RecordFilter
from broker.records.selection import Selection, select
from broker.server.fetch_sessions import is_from_node
from broker.server.old_formats import EXPANSION_MAX, UNPACKED_MAX, StoredAnswer
from broker.wire.messages.fetch import FetchRequest

LOOKED_AT_MAX = 16 << 20
"""Uncompressed bytes that one partition's answer looks at; a batch may come on top."""
_NO_SESSION = -1


class FetchFilters:
    """Applies filters, and counts what they save. Owned by the event loop."""

    def __init__(self) -> None:
        self.looked_at_bytes = 0
        self.dropped_bytes = 0

    def of(self, request: FetchRequest) -> RecordFilter | None:
        """The filter of a request, None without. Raises ProtocolError INVALID_REQUEST."""
        if not request.record_filter:
            return None
        if is_from_node(request) or request.session_epoch != _NO_SESSION:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "a filter where every batch is to be told of")
        try:
            return RecordFilter.parse(request.record_filter)
        except ConfigurationError as error:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def apply(
        self,
        answers: Sequence[StoredAnswer],
        wanted: RecordFilter,
        slots: asyncio.Semaphore,
        *,
        batch_size_max: int,
    ) -> None:
        """Leave in the answers what is wanted, once there is a slot. An error goes into the answer that it
        concerns.
        """
        for stored in answers:
            stored.records.pin()
        try:
            async with slots:
                selections = await asyncio.to_thread(_select_all, answers, wanted, batch_size_max)
        finally:
            for stored in answers:
                stored.records.release()
        for stored, selection in selections:
            dropped_bytes = selection.looked_at_bytes - len(selection.records)
            stored.answer.filtered_bytes = dropped_bytes
            self.looked_at_bytes += selection.looked_at_bytes
            self.dropped_bytes += dropped_bytes


def _select_all(
    answers: Sequence[StoredAnswer], wanted: RecordFilter, batch_size_max: int
) -> list[tuple[StoredAnswer, Selection]]:
    """In one go: a busy event loop lets each turn of a thread wait for some milliseconds, and there may be
    hundreds of answers with a batch each.
    """
    selections = []
    for stored in answers:
        answer = stored.answer
        answer.records = b""
        try:
            selection = _select(stored, wanted, batch_size_max)
        except StorageError:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        except ProtocolError as error:
            answer.error_code = error.code
        else:
            answer.records = selection.records
            answer.filtered_to, answer.filtered_epoch = selection.next_offset, selection.leader_epoch
            selections.append((stored, selection))
    return selections


def _select(stored: StoredAnswer, wanted: RecordFilter, batch_size_max: int) -> Selection:
    return select(
        stored.records.read(),
        wanted,
        unpacked_max=LOOKED_AT_MAX,
        batch_unpacked_max=max(batch_size_max, min(EXPANSION_MAX * batch_size_max, UNPACKED_MAX)),
    )
