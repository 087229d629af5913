"""How far a consumer is, stored with its group: at once, later, and from time to time.

Commits are sent one after the other, in the order in which they were asked for, so that an older position
never takes the place of a newer one. They are made on behalf of the member where there is one; a consumer
with a group whose partitions are assigned by hand stores positions for a group without members.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from broker.client.cluster import Cluster
from broker.client.fetch_state import PartitionState
from broker.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets
from broker.client.member import Member
from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, BrokerError | None], None]
"""Told what was stored, or why it was not."""

_log = logger("consumer")


class Commits:
    """The commits of one consumer; `held` are its partitions."""

    def __init__(
        self, cluster: Cluster, group_id: str, held: Mapping[TopicPartition, PartitionState]
    ) -> None:
        self.member: Member | None = None
        self._cluster = cluster
        self._group_id = group_id
        self._held = held
        self._in_order = asyncio.Lock()
        self._pending: set[asyncio.Task[None]] = set()
        self._last_automatic: Offsets = {}

    async def store(self, offsets: Offsets | None = None) -> None:
        """Store `offsets`, by default the positions of everything handed out.

        Raises BrokerError as the member does and `commit_offsets`.
        """
        await asyncio.shield(self._enqueue(self._positions() if offsets is None else dict(offsets)))

    def store_later(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """As `store`, in the background; the positions are those of now."""
        offsets = self._positions() if offsets is None else dict(offsets)
        self._enqueue(offsets).add_done_callback(partial(self._tell, offsets, callback))

    async def settle(self) -> None:
        """Return when everything asked for so far is stored or has failed."""
        if self._pending:
            await asyncio.wait(self._pending)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored; partitions without are left out. Raises as `fetch_offsets`."""
        if self.member is not None:
            return await self.member.committed(partitions)
        return await fetch_offsets(self._cluster, self._group_id, partitions)

    async def store_periodically(self, interval_ms: float) -> None:
        """Store how far the reader is done, again and again."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.store_processed(self._held)

    async def store_processed(self, partitions: Iterable[TopicPartition]) -> None:
        """Store how far the reader is done with the partitions; a failure is logged."""
        offsets = {
            topic_partition: OffsetAndMetadata(offset=processed)
            for topic_partition in partitions
            if (held := self._held.get(topic_partition)) is not None
            and (processed := held.processed) is not None
        }
        if not offsets or offsets == self._last_automatic:
            return
        try:
            await self.store(offsets)
            self._last_automatic = offsets
        except BrokerError as error:
            _log.warning("offsets_not_committed", group=self._group_id, error=str(error))

    def _enqueue(self, offsets: Offsets) -> asyncio.Task[None]:
        """A commit behind all before it: tasks begin, and get the lock, in the order of their making."""
        task = asyncio.create_task(self._store(offsets), name="commit")
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def _store(self, offsets: Offsets) -> None:
        async with self._in_order:
            if self.member is not None:
                await self.member.commit(offsets)
            else:
                await commit_offsets(self._cluster, self._group_id, offsets)

    def _tell(self, offsets: Offsets, callback: CommitCallback | None, stored: asyncio.Task[None]) -> None:
        failure = None if stored.cancelled() else stored.exception()
        if failure is not None and not isinstance(failure, BrokerError):
            raise failure
        if callback is not None:
            callback(offsets, failure)
        elif failure is not None:
            _log.warning("offsets_not_committed", group=self._group_id, error=str(failure))

    def _positions(self) -> Offsets:
        return {
            topic_partition: OffsetAndMetadata(offset=held.position)
            for topic_partition, held in self._held.items()
            if held.position is not None
        }
