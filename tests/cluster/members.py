"""Nodes of one cluster in memory, each with its driver: what scenarios of the controller run on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from broker.cluster.events import ControllerSettings
from broker.cluster.states import read_states
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import PartitionStateZnode
from broker.types import TopicPartition
from tests.cluster.nodes import Member, Nodes


@dataclass
class Cluster:
    """Members on one tree, and an administrator's session."""

    tree: MemoryTree = field(default_factory=MemoryTree)
    nodes: Nodes = field(default_factory=Nodes)
    members: dict[int, Member] = field(default_factory=dict)
    settings: ControllerSettings = field(default_factory=ControllerSettings)

    async def session(self) -> MemorySession:
        session = MemorySession(self.tree, chroot="/c")
        await session.start(timeout_ms=1_000)
        return session

    async def join(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            member = await Member.join(self.nodes, await self.session(), broker_id, self.settings)
            self.members[broker_id] = member
        await self.until(
            lambda: all(set(broker_ids) <= m.node.image.brokers.keys() for m in self.members.values())
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.nodes.until(condition)

    def controller(self) -> Member | None:
        return next((m for m in self.members.values() if m.driver.is_controller), None)

    def required_controller(self) -> Member:
        controller = self.controller()
        assert controller is not None
        return controller

    def leader(self, tp: TopicPartition) -> int | None:
        """The leader that every member's image agrees on."""
        seen = {
            partition.leader if (partition := m.node.image.partition(tp)) else None
            for m in self.members.values()
        }
        return seen.pop() if len(seen) == 1 else None

    async def state(self, tp: TopicPartition) -> PartitionStateZnode:
        reading = await read_states(self.members[min(self.members)].session, [tp])
        return reading.states[tp].state

    async def close(self) -> None:
        for member in self.members.values():
            await member.leave()


def run(
    scenario: Callable[[Cluster, MemorySession], Awaitable[None]],
    *broker_ids: int,
    settings: ControllerSettings | None = None,
) -> None:
    async def body() -> None:
        cluster = Cluster(settings=settings or ControllerSettings())
        admin = await cluster.session()
        try:
            await cluster.join(*broker_ids)
            await scenario(cluster, admin)
        finally:
            await cluster.close()
            await admin.close()

    asyncio.run(body())
