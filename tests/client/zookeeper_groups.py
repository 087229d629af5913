"""A group that meets in a simulated ZooKeeper: members in processes of their own, faults as a seed draws
them, and what must hold at every moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from random import Random

from broker.client.topic_pattern import TopicPattern
from broker.client.zookeeper_assignment import PartitionNames, partition_of_name, share_of
from broker.client.zookeeper_group import (
    PatternStreams,
    RebalanceFailedError,
    StreamCounts,
    ZooKeeperMember,
)
from broker.client.zookeeper_settings import ZooKeeperGroupSettings
from broker.coordination import paths
from broker.coordination.memory import MemorySession
from broker.coordination.protocol import CreateNode, SetData
from broker.coordination.znodes import ConsumerZnode, TopicZnode
from broker.types import NO_TOPIC_ID, BrokerId, TopicPartition
from tests.sim.loop import Process, SimClock, SimLoop
from tests.sim.zookeeper import SimZooKeeper

GROUP = "g"
SESSION_TIMEOUT_MS = 6_000
MEMBERS_MAX = 5
PARTITIONS_MAX = 9
QUIET_SECONDS = 120
"""By then a group that is left alone has come to rest."""


class Ledger:
    """Who reads what. A partition that two read at a time fails the run."""

    def __init__(self) -> None:
        self.read: dict[Reader, frozenset[TopicPartition]] = {}

    def note(self, reader: Reader) -> None:
        self.read[reader] = reader.reading
        for other, partitions in self.read.items():
            twice = partitions & reader.reading
            assert other is reader or not twice, f"{reader.name} and {other.name} read {twice}"

    def gone(self, reader: Reader) -> None:
        self.read.pop(reader, None)


class Reader:
    """Reads nothing really; takes its time to stop."""

    def __init__(self, name: str, ledger: Ledger, random: Random) -> None:
        self.name = name
        self.shares = 0
        self._ledger = ledger
        self._random = random
        self._held: dict[TopicPartition, int] = {}
        self._in_doubt = False

    @property
    def reading(self) -> frozenset[TopicPartition]:
        return frozenset() if self._in_doubt else frozenset(self._held)

    async def claimed(self, share: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        await asyncio.sleep(self._random.uniform(0, 0.5))
        return {}

    def assigned(self, share: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]) -> None:
        self.shares += 1
        self._held |= share
        self._ledger.note(self)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(self._random.uniform(0, 1))
        self.lost(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._held.pop(partition, None)
        self._ledger.note(self)

    def doubted(self) -> None:
        self._in_doubt = True
        self._ledger.note(self)

    def assured(self) -> None:
        self._in_doubt = False
        self._ledger.note(self)


class SimulatedMember:
    """One process of the group."""

    def __init__(self, group: SimulatedGroup, name: str, subscription: StreamCounts | PatternStreams) -> None:
        self.name = name
        self.reader = Reader(name, group.ledger, group.random)
        self.process: Process = group.loop.new_process(name)
        self.session = group.zookeeper.session(self.process)
        self.member: ZooKeeperMember | None = None
        self._group = group
        self._subscription = subscription
        self.task = group.loop.create_task(self._live(), context=self.process.context)

    async def _live(self) -> None:
        await self.session.start(timeout_ms=60_000)
        while True:
            settings = ZooKeeperGroupSettings(consumer_id=self.name, names=self._group.names)
            self.member = ZooKeeperMember(
                self.session,
                GROUP,
                settings,
                subscription=self._subscription,
                listener=self.reader,
                clock=SimClock(self._group.loop),
            )
            try:
                await self.member.run()
                break
            except RebalanceFailedError:
                continue
        await self.session.close()

    async def leave(self) -> None:
        if self.member is None:
            self.kill()
            return
        self.resume()
        await self.member.close()
        await self.task
        self._group.gone(self)

    def cut(self) -> None:
        """Cut its connection to ZooKeeper, once there is one."""
        if self.member is not None:
            self.session.cut()

    def pause(self) -> None:
        """Let it stand still; as long as it does it reads nothing."""
        if self.member is not None and not self.process.is_paused:
            self._group.loop.pause(self.process)
            self.session.unheard()
            self._group.ledger.gone(self.reader)

    def resume(self) -> None:
        """Let it go on: once it has done what was due, it has to know what it may read."""
        if self.process.is_paused:
            self._group.loop.call_soon(self._group.ledger.note, self.reader, context=self.process.context)
            self._group.loop.resume(self.process)
            self.session.heard()

    def kill(self) -> None:
        self.session.died(lost=self._group.random.random() < 0.5)
        self._group.gone(self)
        self._group.loop.end(self.process)


class SimulatedGroup:
    """The ensemble, the topics and the members."""

    def __init__(self, seed: int, *, names: PartitionNames = PartitionNames.NUMBER) -> None:
        self.random = Random(f"group {seed}")
        self.names = names
        self.loop = SimLoop(Random(f"loop {seed}"))
        self.zookeeper = SimZooKeeper(
            self.loop, Random(f"zookeeper {seed}"), session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self.ledger = Ledger()
        self.members: dict[str, SimulatedMember] = {}
        self.topics: dict[str, dict[int, tuple[BrokerId, ...]]] = {}
        self._joined = 0
        self._admin = MemorySession(self.zookeeper.tree)

    async def begin(self, topics: int = 2) -> None:
        await self._admin.start(timeout_ms=1_000)
        for path in (paths.BROKER_IDS, paths.TOPICS):
            await self._admin.create(path, b"")
        for _ in range(topics):
            self.create_topic()

    # What happens

    def create_topic(self) -> None:
        name = f"topic-{len(self.topics)}"
        self.topics[name] = self._partitions(self.random.randint(1, PARTITIONS_MAX))
        data = TopicZnode(topic_id=NO_TOPIC_ID, partitions=self.topics[name]).encode()
        self.zookeeper.tree.commit(0, [CreateNode(path=paths.topic(name), data=data)])

    def change_topic(self) -> None:
        """More partitions, and another order of the replicas."""
        name = self.random.choice(list(self.topics))
        count = len(self.topics[name]) + self.random.randint(0, 2)
        self.topics[name] = self._partitions(count)
        data = TopicZnode(topic_id=NO_TOPIC_ID, partitions=self.topics[name]).encode()
        self.zookeeper.tree.commit(0, [SetData(path=paths.topic(name), data=data)])

    def _partitions(self, count: int) -> dict[int, tuple[BrokerId, ...]]:
        return {number: (BrokerId(self.random.randint(1, 3)),) for number in range(count)}

    def join(self, subscription: StreamCounts | PatternStreams | None = None) -> SimulatedMember:
        self._joined += 1
        name = f"host:{self._joined}"
        self.members[name] = SimulatedMember(self, name, subscription or self._subscription())
        return self.members[name]

    def _subscription(self) -> StreamCounts | PatternStreams:
        draw = self.random.random()
        streams = self.random.randint(1, 3)
        if draw < 0.3:
            return TopicPattern.allow("topic-.*"), streams
        if draw < 0.5:
            return TopicPattern.deny("topic-1"), streams
        return dict.fromkeys(("topic-0", "topic-1", "topic-7")[: self.random.randint(1, 3)], streams)

    def gone(self, member: SimulatedMember) -> None:
        self.members.pop(member.name, None)
        self.ledger.gone(member.reader)

    async def disturb(self, steps: int) -> None:
        """Let so many things happen, at drawn times."""
        for _ in range(steps):
            await asyncio.sleep(self.random.choice((0.001, 0.01, 0.1, 1.0, 8.0)) * self.random.random())
            await self._happen()
        await self.end_faults()

    async def _happen(self) -> None:
        member = self.random.choice(list(self.members.values()) or [None])
        draw = self.random.random()
        if member is None or (draw < 0.25 and len(self.members) < MEMBERS_MAX):
            self.join()
        elif draw < 0.35:
            await member.leave()
        elif draw < 0.5:
            member.kill()
        elif draw < 0.6:
            member.cut()
        elif draw < 0.7:
            member.session.heal()
        elif draw < 0.78:
            member.pause()
        elif draw < 0.85:
            member.resume()
        elif draw < 0.89:
            self.zookeeper.stop()
        elif draw < 0.93:
            self.zookeeper.restart()
        elif draw < 0.97:
            self.change_topic()
        else:
            self.create_topic()

    async def end_faults(self) -> None:
        self.zookeeper.restart()
        for member in self.members.values():
            member.resume()
            member.session.heal()
        await asyncio.sleep(QUIET_SECONDS)

    async def end(self) -> None:
        for member in list(self.members.values()):
            await member.leave()
        await self._admin.close()

    # What must hold in the end

    async def check_settled(self) -> None:
        """Each member reads exactly its share, and owns it; nobody owns anything else."""
        for member in self.members.values():
            if member.task.done():
                await member.task  # which says what went wrong
        registrations = await self._registrations()
        assert registrations.keys() == self.members.keys()
        owners: dict[TopicPartition, str] = {}
        for name, member in self.members.items():
            share = share_of(name, registrations, self.topics)
            assert member.reader.reading == share.keys(), name
            owners |= {partition: f"{name}-{stream}" for partition, stream in share.items()}
        wanted = {topic for topic in self.topics if self._is_wanted(topic, registrations)}
        every = {TopicPartition(topic, number) for topic in wanted for number in self.topics[topic]}
        assert owners.keys() == every
        assert await self._owners() == owners

    def _is_wanted(self, topic: str, registrations: Mapping[str, ConsumerZnode]) -> bool:
        only = {topic: self.topics[topic]}
        return any(share_of(name, registrations, only) for name in registrations)

    async def _registrations(self) -> dict[str, ConsumerZnode]:
        found = {}
        for name in await self._admin.children(paths.consumer_ids(GROUP)):
            path = paths.consumer_id(GROUP, name)
            znode = await self._admin.get(path)
            assert znode is not None
            found[name] = ConsumerZnode.decode(znode.data, path)
        return found

    async def _owners(self) -> dict[TopicPartition, str]:
        found = {}
        for topic in self.topics:
            parent = paths.consumer_owners(GROUP, topic)
            for name in await self._admin.children(parent):
                znode, number = await self._admin.get(f"{parent}/{name}"), partition_of_name(name)
                assert znode is not None
                assert number is not None
                assert TopicPartition(topic, number) not in found, "one owner by either name"
                found[TopicPartition(topic, number)] = znode.data.decode()
        return found
