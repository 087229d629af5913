"""What a controller writes to ZooKeeper: every write is a multi that a successor's election fences.

A multi also checks the version of `/controller_epoch`: after a successor raised it, nothing of this reign can
be written any more. States of partitions are written many at a time; where one of them is refused, each is
written alone, so that it stands in nobody's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain

from broker.cluster.channel import ControllerFencedError
from broker.cluster.events import StateWrite, StoredState, TopicWrite, WritesDone
from broker.cluster.states import in_flight, read_states
from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    CheckVersion,
    Coordination,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from broker.coordination.znodes import TopicZnode
from broker.types import TopicPartition

WRITES_PER_MULTI_MAX = 200
"""A state takes some 200 bytes with its path, and a request to ZooKeeper at most 1 MB."""
DELETIONS_PER_MULTI_MAX = 500


class FencedWrites:
    """The writes of one reign; `epoch_version` is the version of the epoch's znode that its election made."""

    def __init__(self, coordination: Coordination, epoch_version: int) -> None:
        self._coordination = coordination
        self._epoch_version = epoch_version

    async def commit(self, operations: Sequence[Operation]) -> list[int]:
        """A multi that only the current controller can do; returns the versions of `operations`."""
        fence = CheckVersion(path=paths.CONTROLLER_EPOCH, version=self._epoch_version)
        return (await self._coordination.multi([fence, *operations]))[1:]

    async def check_not_fenced(self) -> None:
        """Raises ControllerFencedError when another controller has been elected."""
        znode = await self._coordination.get(paths.CONTROLLER_EPOCH)
        if znode is None or znode.version != self._epoch_version:
            raise ControllerFencedError(f"{paths.CONTROLLER_EPOCH} was raised by another controller")

    async def write_states(self, writes: Mapping[TopicPartition, StateWrite]) -> WritesDone:
        """Write states, each on its condition. Raises ControllerFencedError, SessionLostError."""
        done: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, StoredState | None] = {}
        unreadable: set[TopicPartition] = set()
        created = {tp.topic for tp, write in writes.items() if write.expected_version is None}
        await in_flight(sorted(created), self._create_partitions_parent)

        async def write_alone(tp: TopicPartition) -> None:
            try:
                done[tp] = await self._write_state(tp, writes[tp])
            except (BadVersionError, NodeExistsError, NoNodeError):
                await self.check_not_fenced()
                reading = await read_states(self._coordination, [tp])
                refused[tp] = reading.states.get(tp)
                unreadable.update(reading.unreadable)

        async def write_together(partitions: Sequence[TopicPartition]) -> None:
            operations = [_state_operations(tp, writes[tp]) for tp in partitions]
            try:
                versions = await self.commit(list(chain.from_iterable(operations)))
            except (BadVersionError, NodeExistsError, NoNodeError):  # one of them stands in the way of all
                await in_flight(partitions, write_alone)
                return
            ends = accumulate(map(len, operations))
            done.update({tp: versions[end - 1] for tp, end in zip(partitions, ends, strict=True)})

        wanted = list(writes)
        starts = range(0, len(wanted), WRITES_PER_MULTI_MAX)
        await in_flight([wanted[start : start + WRITES_PER_MULTI_MAX] for start in starts], write_together)
        return WritesDone(done=done, refused=refused, unreadable=frozenset(unreadable))

    async def write_topics(self, writes: Mapping[str, TopicWrite]) -> WritesDone:
        """Write topics' assignments that still say what is expected. Raises as `write_states` does."""
        done: set[str] = set()
        refused: dict[str, TopicZnode | None] = {}

        async def write(name: str) -> None:
            path, wanted = paths.topic(name), writes[name]
            try:
                znode = await self._coordination.get(path)
                found = None if znode is None else TopicZnode.decode(znode.data, path)
                if znode is None or found != wanted.expected:
                    await self.check_not_fenced()
                    refused[name] = found
                    return
                await self.commit([SetData(path=path, data=wanted.topic.encode(), version=znode.version)])
                done.add(name)
            except (BadVersionError, NoNodeError):
                await self.check_not_fenced()
                await write(name)

        await in_flight(list(writes), write)
        return WritesDone(topics_done=frozenset(done), topics_refused=refused)

    async def _write_state(self, tp: TopicPartition, write: StateWrite) -> int:
        operations = _state_operations(tp, write)
        try:
            return (await self.commit(operations))[-1]
        except NodeExistsError:  # perhaps only the znode above the state
            return (await self.commit(operations[-1:]))[0]

    async def _create_partitions_parent(self, topic: str) -> None:
        try:
            await self.commit([CreateNode(path=paths.topic_partitions(topic), data=b"")])
        except (NodeExistsError, NoNodeError):
            await self.check_not_fenced()

    async def erase_topic(self, topic: str) -> None:
        """Remove a deleted topic's znodes, the request last. A topic made anew under this name is never
        touched. Raises as `write_states` does.
        """
        tree = await self._subtree(paths.topic(topic))
        config = await self._subtree(paths.topic_config(topic))
        doomed = [*tree[:-1], *config, *tree[-1:], *await self._subtree(paths.delete_topic(topic))]
        for start in range(0, len(doomed), DELETIONS_PER_MULTI_MAX):
            some = doomed[start : start + DELETIONS_PER_MULTI_MAX]
            await self.commit([DeleteNode(path=path) for path in some])

    async def _subtree(self, top: str) -> list[str]:
        """A znode and everything below it, whatever is above something after it; empty when it is not
        there.
        """
        levels = [[top]] if await self._coordination.get(top) is not None else []
        while levels and levels[-1]:
            found: list[str] = []

            async def look(path: str, found: list[str] = found) -> None:
                found.extend(f"{path}/{name}" for name in await self._coordination.children(path))

            await in_flight(levels[-1], look)
            levels.append(found)
        return [path for level in reversed(levels) for path in level]


def _state_operations(tp: TopicPartition, write: StateWrite) -> list[Operation]:
    """What writes a state, which is the last of them; one that is created needs the znode above it."""
    path, data = paths.partition_state(tp), write.state.encode()
    if write.expected_version is not None:
        return [SetData(path=path, data=data, version=write.expected_version)]
    return [CreateNode(path=paths.partition(tp), data=b""), CreateNode(path=path, data=data)]
