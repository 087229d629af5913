"""Records that are opened because their topic asks for it: in a thread where that takes long, and counted.

Batches pass a node closed. Where they do not, an operator should be able to see it: a topic's first batch
that is opened for a reason is logged, and all are counted by reason. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from broker.errors import ErrorCode, ExpansionError, ProtocolError
from broker.storage.admission import Opening, Reason, opened_at_once
from broker.telemetry import logger

log = logger("openings")

OPENED_TOGETHER_MAX = 2
"""Openings in threads at the same time: what each unpacks takes memory."""


class Openings:
    """See the module's description."""

    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter()
        self._seen: set[tuple[str, Reason]] = set()
        self._slots = asyncio.Semaphore(OPENED_TOGETHER_MAX)

    def at_once(self, topic: str, opening: Opening) -> bytearray | None:
        """The batches to append where that is quick, else None. Raises ProtocolError."""
        records = opened_at_once(opening)
        if records is not None:
            self._note(topic, opening)
        return records

    async def in_thread(self, topic: str, opening: Opening) -> bytearray:
        """The batches to append. Raises ProtocolError, MESSAGE_TOO_LARGE where they unpack to too much."""
        async with self._slots:
            try:
                records = await asyncio.to_thread(opening.run)
            except ExpansionError as error:
                raise ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, error.message) from error
        self._note(topic, opening)
        return records

    def _note(self, topic: str, opening: Opening) -> None:
        self.counts.update(opening.reasons)
        for reason in opening.reasons:
            if (topic, reason) not in self._seen:
                self._seen.add((topic, reason))
                log.info("records_opened", topic=topic, reason=reason.value)
