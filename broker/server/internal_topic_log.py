"""An internal topic as the log of its coordinator: appends as acks=all, reads of a whole partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from broker.clock import Clock
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import read_header
from broker.replication.replicas import Replicas
from broker.server.cluster_view import ClusterView

READ_SIZE = 1024 * 1024
"""Read at a time, where nothing else is said."""


class InternalTopicLog:
    """Implements the coordinators' port to `topic` on this node's replicas."""

    def __init__(
        self,
        topic: str,
        view: ClusterView,
        replicas: Replicas,
        clock: Clock,
        *,
        commit_timeout_ms: int,
        read_size: int = READ_SIZE,
    ) -> None:
        self._topic = topic
        self._read_size = read_size
        self._view = view
        self._replicas = replicas
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms

    @property
    def partition_count(self) -> int:
        """Partitions of the topic; 0 while it does not exist."""
        topic = self._view.image.topic(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def is_leader(self, partition: int) -> bool:
        """Whether this node leads `partition` now."""
        replica = self._replicas.get(self._topic, partition)
        return replica is not None and replica.machine.is_leader

    async def append(self, partition: int, batch: bytearray) -> None:
        """Append one batch and return once it is committed.

        Raises ProtocolError, REQUEST_TIMED_OUT among others.
        """
        replica = self._replicas.leader(self._topic, partition)
        now_ms = self._clock.now_ms()
        if read_header(batch).is_transactional:
            appended = replica.append_unsequenced(batch, now_ms=now_ms)
        else:
            appended = replica.append(batch, acks=-1, now_ms=now_ms)
        next_offset = appended.last_offset + 1
        try:
            async with asyncio.timeout(self._commit_timeout_ms / 1000):
                if replica.flush_is_due:
                    await replica.flush_through(next_offset)
                if (committed := replica.acknowledgement(next_offset, -1)) is not None:
                    await committed
        except TimeoutError:
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "the in-sync replicas were too slow") from None

    async def read_all(self, partition: int) -> AsyncIterator[bytes]:
        """The log from start to end, in chunks of whole batches; other connections are served in between.

        What another leader left here uncommitted is committed first: else one that comes after this node
        could be without what clients were told. Raises ProtocolError when this node stops leading meanwhile.
        """
        replica = self._replicas.leader(self._topic, partition)
        offset, end = replica.log.log_start_offset, replica.log.log_end_offset
        if (committed := replica.acknowledgement(end, -1)) is not None:
            await committed
        while offset < end:
            replica.machine.require_leader()
            found = replica.read(offset, max_bytes=self._read_size, up_to=end, min_one_batch=True)
            if found is None:
                return
            yield found.read()
            offset = found.next_offset
            await asyncio.sleep(0)
