"""Moves asked for by `/admin/reassign_partitions`, the way of Kafka's tools before KIP-455.

Who asks creates the znode with the replicas that partitions shall have. The controller begins those moves as
if they had been asked for by request, takes out of the znode what has arrived, was refused or has been given
another direction since, and removes the znode with the last of them: so the tools see how far it is. What
cannot be read is logged and removed, since the tools ask for nothing while the znode is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from broker.cluster.reassignment import Replicas, is_moving, target_of
from broker.coordination import paths
from broker.coordination.protocol import BadVersionError, Coordination, NoNodeError, Znode
from broker.coordination.znodes import ReassignmentZnode, TopicZnode
from broker.errors import CoordinationError, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition

Moves = Mapping[TopicPartition, Replicas]
Begin = Callable[[Moves], Awaitable[Mapping[TopicPartition, ProtocolError | None]]]
"""Begins moves; what kept each from being begun."""

_log = logger("controller")


class AskedMoves:
    """One reign's. Begun ones are remembered, so that a newer request for the same partition prevails."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._begun: Moves = {}

    def have_ended(self, topics: Mapping[str, TopicZnode]) -> bool:
        """Whether one that was begun is not under way any more."""
        return not all(_is_under_way(topics, tp, target) for tp, target in self._begun.items())

    async def look(self, topics: Callable[[], Mapping[str, TopicZnode]], begin: Begin) -> None:
        """Begin what is asked for and new, and write back what of it is under way."""
        znode = await self._coordination.get(paths.REASSIGN_PARTITIONS)
        if znode is None:
            self._begun = {}
            return
        asked = _decoded(znode)
        fresh = {
            tp: target
            for tp, target in asked.items()
            if self._begun.get(tp) != target and not _is_at(topics(), tp, target)
        }
        for tp, refusal in (await begin(fresh)).items():
            if refusal is not None:
                _log.error("asked_move_refused", partition=str(tp), reason=str(refusal))
        self._begun = {tp: target for tp, target in asked.items() if _is_under_way(topics(), tp, target)}
        if not asked or self._begun != asked:
            await self._write_back(znode)

    async def _write_back(self, znode: Znode) -> None:
        """Where the znode was changed meanwhile it is looked at again."""
        path = paths.REASSIGN_PARTITIONS
        try:
            if self._begun:
                remaining = ReassignmentZnode(partitions=self._begun)
                await self._coordination.set(path, remaining.encode(), version=znode.version)
            else:
                await self._coordination.delete(path, version=znode.version, recursive=True)
        except (BadVersionError, NoNodeError):
            return


def _decoded(znode: Znode) -> Moves:
    try:
        return ReassignmentZnode.decode(znode.data, paths.REASSIGN_PARTITIONS).partitions
    except CoordinationError as error:
        _log.error("znode_unreadable", path=paths.REASSIGN_PARTITIONS, reason=str(error))
        return {}


def _is_at(topics: Mapping[str, TopicZnode], tp: TopicPartition, target: Replicas) -> bool:
    """Whether the partition has these replicas or is on its way to them."""
    topic = topics.get(tp.topic)
    return topic is not None and tp.partition in topic.partitions and target_of(topic, tp.partition) == target


def _is_under_way(topics: Mapping[str, TopicZnode], tp: TopicPartition, target: Replicas) -> bool:
    return _is_at(topics, tp, target) and is_moving(topics[tp.topic], tp.partition)
