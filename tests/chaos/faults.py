"""What can break in a cluster of three nodes: each fault begins, lasts a while beside others, and ends."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.load import CLIENT_SETTINGS
from tests.chaos.network import Direction
from tests.chaos.three_nodes import NODES, ZOOKEEPER, ThreeNodes, place

EVERYTHING = "everything"
STOP_TIMEOUT_MS = 60_000
REQUEST_SECONDS = 5
SECONDS_MAX = 8.0
"""How long faults last: some are shorter than a session, some longer."""


class Fault(ABC):
    """One thing that breaks; those that touch the same part do not last at the same time."""

    @property
    @abstractmethod
    def touches(self) -> frozenset[str]:
        """The parts that it needs for itself."""

    @abstractmethod
    def begin(self, nodes: ThreeNodes) -> None:
        """Break it."""

    @abstractmethod
    def end(self, nodes: ThreeNodes) -> None:
        """Bring it back, or begin to."""


def _process(broker_id: int) -> str:
    return f"process {broker_id}"


@dataclass(frozen=True, slots=True)
class Crash(Fault):
    """kill -9 of some or all nodes."""

    broker_ids: Sequence[int]

    @property
    def touches(self) -> frozenset[str]:
        return frozenset(map(_process, self.broker_ids))

    def begin(self, nodes: ThreeNodes) -> None:
        for broker_id in self.broker_ids:
            nodes.kill(broker_id)

    def end(self, nodes: ThreeNodes) -> None:
        for broker_id in self.broker_ids:
            nodes.start_soon(broker_id)


@dataclass(frozen=True, slots=True)
class Freeze(Fault):
    """SIGSTOP and SIGCONT, as a machine does that swaps or is moved."""

    broker_id: int

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({_process(self.broker_id)})

    def begin(self, nodes: ThreeNodes) -> None:
        nodes.signal(self.broker_id, signal.SIGSTOP)

    def end(self, nodes: ThreeNodes) -> None:
        nodes.signal(self.broker_id, signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class FullDisk(Fault):
    """A disk with little room left, or none."""

    broker_id: int
    left: int

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({f"disk {self.broker_id}"})

    def begin(self, nodes: ThreeNodes) -> None:
        if nodes.has_disks:
            nodes.fill(self.broker_id, self.left)

    def end(self, nodes: ThreeNodes) -> None:
        if nodes.has_disks:
            nodes.make_room(self.broker_id)


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Silence in some directions of the network; with `reset`, connections there end before."""

    directions: Sequence[Direction]
    reset: bool

    @property
    def touches(self) -> frozenset[str]:
        return frozenset(" and ".join(sorted(direction)) for direction in self.directions)

    def begin(self, nodes: ThreeNodes) -> None:
        nodes.network.cut(*self.directions)
        if self.reset:
            for direction in self.directions:
                nodes.network.reset(*direction)

    def end(self, nodes: ThreeNodes) -> None:
        nodes.network.mend(*self.directions)


@dataclass(frozen=True, slots=True)
class ZooKeeperAway(Fault):
    """ZooKeeper stops or is killed; sessions may be over when it is back."""

    killed: bool

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({ZOOKEEPER})

    def begin(self, nodes: ThreeNodes) -> None:
        pid = nodes.zookeeper.pid
        if pid is not None and self.killed:
            os.kill(pid, signal.SIGKILL)
        nodes.zookeeper.stop()

    def end(self, nodes: ThreeNodes) -> None:
        nodes.zookeeper.start()


@dataclass(frozen=True, slots=True)
class RollingRestart(Fault):
    """One node after the other is stopped as operators do, and started again; nothing else breaks then."""

    order: Sequence[int]

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({EVERYTHING})

    def begin(self, nodes: ThreeNodes) -> None:
        for broker_id in self.order:
            code = nodes.cluster.stop_node(broker_id, timeout_ms=STOP_TIMEOUT_MS)
            nodes.journal.note(f"node {broker_id} stopped with {code}")
            assert code == 0, f"node {broker_id} ended with {code} when it was told to stop"
            nodes.start_soon(broker_id)
            nodes.settle()

    def end(self, nodes: ThreeNodes) -> None:
        pass


@dataclass(frozen=True, slots=True)
class PassingTopic(Fault):
    """No fault: a topic comes and goes while things break. What nobody carries out is not repeated."""

    topic: str

    @property
    def touches(self) -> frozenset[str]:
        return frozenset({self.topic})

    def begin(self, nodes: ThreeNodes) -> None:
        topic = NewTopic(self.topic, len(NODES), len(NODES))
        admin = _admin(nodes)
        _attempt(admin.create_topics([topic], request_timeout=REQUEST_SECONDS))

    def end(self, nodes: ThreeNodes) -> None:
        admin = _admin(nodes)
        _attempt(admin.delete_topics([self.topic], request_timeout=REQUEST_SECONDS))


def _admin(nodes: ThreeNodes) -> AdminClient:
    return AdminClient({"bootstrap.servers": nodes.bootstrap, **CLIENT_SETTINGS})


def _attempt(results: Mapping[str, Future[None]]) -> None:
    for result in results.values():
        with contextlib.suppress(KafkaException):
            result.result(2 * REQUEST_SECONDS)


Choice = Callable[[Random], Fault]


def crash(chance: Random) -> Fault:
    """Mostly of one node, now and then of two, or of all."""
    count = chance.choices([1, 2, 3], [8, 1, 1])[0]
    return Crash(chance.sample(NODES, count))


def freeze(chance: Random) -> Fault:
    """Of any node."""
    return Freeze(chance.choice(NODES))


def full_disk(chance: Random) -> Fault:
    """Of any node, with room for some records or for none."""
    return FullDisk(chance.choice(NODES), chance.choice([0, 4096, 1 << 20, chance.randrange(4 << 20)]))


def cut_between_nodes(chance: Random) -> Fault:
    """Between two nodes, sometimes in one direction alone."""
    one, other = map(place, chance.sample(NODES, 2))
    return _cut(chance, [(one, other)] if chance.random() < 0.3 else [(one, other), (other, one)])


def cut_from_zookeeper(chance: Random) -> Fault:
    """A node and ZooKeeper."""
    node = place(chance.choice(NODES))
    return _cut(chance, [(node, ZOOKEEPER), (ZOOKEEPER, node)])


def isolation(chance: Random) -> Fault:
    """A node from all others, who elect leaders without it, and perhaps from ZooKeeper; clients reach it."""
    alone = chance.choice(NODES)
    others = [place(broker_id) for broker_id in NODES if broker_id != alone]
    if chance.random() < 0.7:
        others.append(ZOOKEEPER)
    node = place(alone)
    return _cut(chance, [way for other in others for way in ((node, other), (other, node))])


def zookeeper_away(chance: Random) -> Fault:
    """In either way."""
    return ZooKeeperAway(chance.random() < 0.5)


def rolling_restart(chance: Random) -> Fault:
    """In any order."""
    return RollingRestart(chance.sample(NODES, len(NODES)))


def passing_topic(chance: Random) -> Fault:
    """A name that was not there before."""
    return PassingTopic(f"passing-{chance.randrange(1 << 32):08x}")


def _cut(chance: Random, directions: Sequence[Direction]) -> Cut:
    return Cut(directions, reset=chance.random() < 0.3)


class Schedule:
    """What breaks in each round: faults that overlap, drawn by weight. Everything comes from `chance`."""

    def __init__(self, chance: Random, choices: Mapping[Choice, int]) -> None:
        self._chance = chance
        self._choices = choices

    def draw(self) -> list[Fault]:
        """One to three faults that touch different parts."""
        wanted = self._chance.choices([1, 2, 3], [4, 3, 2])[0]
        faults: list[Fault] = []
        taken: set[str] = set()
        for choice in self._chance.choices(list(self._choices), list(self._choices.values()), k=wanted):
            fault = choice(self._chance)
            is_alone = EVERYTHING in fault.touches | taken
            if not faults or not (is_alone or taken & fault.touches):
                faults.append(fault)
                taken |= fault.touches
        return faults

    def run(self, faults: Sequence[Fault], nodes: ThreeNodes, pause: Callable[[float, float], None]) -> None:
        """Begin one after the other, end them in any order; all nodes run at the return."""
        for fault in faults:
            nodes.journal.note(f"begins: {fault}")
            fault.begin(nodes)
            pause(0.0, 1.0)
        pause(0.0, SECONDS_MAX)
        for fault in self._chance.sample(faults, len(faults)):
            pause(0.0, 2.0)
            fault.end(nodes)
            nodes.journal.note(f"ends: {fault}")
        nodes.settle()
