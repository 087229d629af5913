"""Positions that go to the route's group: periodically, when something waits for them, and before partitions
are given up. What the books have to say of them is written first; where the source does not answer, what
arrives meanwhile is written down all the same, as the partitions may be lost before it does.

Owned by the copier's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from broker.client.group_offsets import OffsetsRefusedError
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.books import Books
from mirrormaker.flow.delivery import DeliveryMode
from mirrormaker.flow.group_positions import GroupPositions, StoredPosition
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.progress import acknowledged
from mirrormaker.flow.reader import SourceReader
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.transaction_steps import LanePositions

WRITE_INTERVAL_MS = 500
"""How often what arrives is written down while positions wait for an answer."""


class PositionCommits:
    """See the module; of one copier at work."""

    def __init__(
        self,
        machine: FlowMachine,
        reader: SourceReader,
        positions: GroupPositions,
        mode: DeliveryMode,
        books: Books | None,
        on_committed: Callable[[], None],
    ) -> None:
        """`on_committed`: the machine may send more."""
        self._machine = machine
        self._reader = reader
        self._positions = positions
        self._mode = mode
        self._books = books
        self._on_committed = on_committed
        self._turn = asyncio.Lock()
        self._told: str | None = None
        """Why positions are not stored, as last logged; None once all were."""
        self._log = logger("commits")

    async def run(self, due: Signal, interval_ms: Callable[[], int]) -> None:
        """Commit what moved every so often, and whenever that is `due`; until cancelled."""
        while True:
            await due.wait(interval_ms())
            await self.commit(self.moved)

    def moved(self) -> dict[TopicPartition, int]:
        """Positions that are to be stored, or what is stored along with them."""
        return {**self._mode.unnoted(), **self._machine.uncommitted()}

    async def commit(self, find: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Store the positions that `find` tells. A failure is not the end: they are stored with the next.

        One commit after the other, each of what counts when its turn has come: of many partitions it is
        several requests, and one that came later must not be overtaken by the last of these.
        """
        async with self._turn:
            await self._commit(find())

    async def _commit(self, positions: Mapping[TopicPartition, int]) -> None:
        partitions = self._machine.partitions
        had = {source: (partitions[source], partitions[source].logs_gone) for source in positions}

        def is_held(source: TopicPartition) -> bool:
            """Whether it was not lost meanwhile: who has it then may have stored more."""
            return partitions.get(source) is had[source][0]

        def is_same(source: TopicPartition) -> bool:
            """Nor its source the end of its log."""
            return is_held(source) and partitions[source].logs_gone == had[source][1]

        reached = self._reached(positions)
        written = await self._write_down(positions, reached)
        positions = {source: at for source, at in written.items() if is_same(source)}
        if not positions:
            return
        topic_id = self._reader.ranges.topic_id
        kept = {
            source: each
            for source, offset in positions.items()
            if (each := self._mode.keep(source, offset, reached[source])) is not None
        }
        stored = {
            source: StoredPosition(
                each.position,
                topic_id(source),
                each.note,
                partitions[source].epochs.told_before(each.position),
            )
            for source, each in kept.items()
        }
        try:
            await self._store(stored)
            self._told = None
        except BrokerError as error:
            refused = error.refused if isinstance(error, OffsetsRefusedError) else kept.keys()
            self._tell(len(refused), str(error))
            kept = {source: each for source, each in kept.items() if source not in refused}
            if not kept:
                return
        same = {
            source: each
            for source, each in kept.items()
            if is_same(source) and topic_id(source) == stored[source].topic_id
        }
        self._mode.kept(same)
        # also of a log that is gone by now: the group has that until another is stored
        self._machine.committed({source: each.position for source, each in kept.items() if is_held(source)})
        self._reader.answers.forget({source: each.position for source, each in same.items()})
        self._on_committed()

    def _tell(self, count: int, problem: str) -> None:
        """It is tried again every moment, for as long as a right is missing."""
        if problem != self._told:
            self._log.warning("positions_not_committed", count=count, error=problem)
            self._told = problem

    def _reached(self, sources: Collection[TopicPartition]) -> dict[TopicPartition, LanePositions]:
        """What the destination has of these now."""
        return {source: acknowledged(self._machine.partitions[source]) for source in sources}

    async def _write_down(
        self, positions: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, LanePositions]
    ) -> Mapping[TopicPartition, int]:
        """What the books say of these; those that may be committed."""
        if self._books is None or not positions:
            return positions
        return await self._books.write(positions, reached)

    async def _store(self, stored: Mapping[TopicPartition, StoredPosition]) -> None:
        """Raises BrokerError."""
        storing = asyncio.ensure_future(self._positions.store(stored))
        try:
            while not (await asyncio.wait([storing], timeout=WRITE_INTERVAL_MS / 1000))[0]:
                arrived = self._machine.uncommitted()
                await self._write_down(arrived, self._reached(arrived))
        finally:
            storing.cancel()
            await asyncio.wait([storing])
        storing.result()
