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
from broker.cluster.states import decode_state, in_flight
from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    CheckVersion,
    Coordination,
    CreateNode,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from broker.coordination.znodes import TopicZnode
from broker.errors import CoordinationError
from broker.telemetry import logger
from broker.types import TopicPartition

WRITES_PER_MULTI_MAX = 200
"""A state takes some 200 bytes with its path, and a request to ZooKeeper at most 1 MB."""

_log = logger("controller")


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
        created = {tp.topic for tp, write in writes.items() if write.expected_version is None}
        await in_flight(sorted(created), self._create_partitions_parent)

        async def write_alone(tp: TopicPartition) -> None:
            try:
                done[tp] = await self._write_state(tp, writes[tp])
            except (BadVersionError, NodeExistsError, NoNodeError):
                refused[tp] = await self._read_back(tp)

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
        return WritesDone(done=done, refused=refused)

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

    async def _read_back(self, tp: TopicPartition) -> StoredState | None:
        """The state that stood in the way of a write."""
        await self.check_not_fenced()
        path = paths.partition_state(tp)
        znode = await self._coordination.get(path)
        if znode is None:
            return None
        try:
            return decode_state(znode, path)
        except CoordinationError as error:
            _log.error("znode_unreadable", path=path, reason=str(error))
            return None


def _state_operations(tp: TopicPartition, write: StateWrite) -> list[Operation]:
    """What writes a state, which is the last of them; one that is created needs the znode above it."""
    path, data = paths.partition_state(tp), write.state.encode()
    if write.expected_version is not None:
        return [SetData(path=path, data=data, version=write.expected_version)]
    return [CreateNode(path=paths.partition(tp), data=b""), CreateNode(path=path, data=data)]
