"""A whole cluster in one process: machines, ZooKeeper, network, clients, and what goes wrong with them.

A run has four parts: the cluster comes up and gets a topic; clients work while faults strike; all faults end
and everything must be well again within a bounded time; then nothing is under way any more and all replicas
must be the same. Everything follows from the seed. See `checks` for what must hold all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

from broker.coordination import paths
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.replication.replica import Replica
from broker.types import BrokerId, TopicPartition
from tests.sim.admin import Admin
from tests.sim.checks import Checks, ViolationError
from tests.sim.clients import CarelessProducer, Consumer, Producer
from tests.sim.faults import Faults
from tests.sim.loop import Process, SimLoop, SimulationError
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.scenario import Scenario
from tests.sim.transactional import CommittedReader, Desk, require_outcomes
from tests.sim.zookeeper import SimZooKeeper

if TYPE_CHECKING:
    from tests.sim.clients import Client
    from tests.sim.members import Member

HEALED_WITHIN_SECONDS = 120.0
"""How long after the end of all faults everything must be well again."""
STARTED_WITHIN_SECONDS = 60.0
LOOK_SECONDS = 0.05
TOPIC = "t"

Note = Callable[[float, str, str], None]


class World:
    """One run. `note` is told of everything that happens: time, who, what."""

    def __init__(self, seed: int, scenario: Scenario | None = None, *, note: Note | None = None) -> None:
        random = Random(f"world {seed}")
        self.seed = seed
        self.scenario = scenario or Scenario.drawn(random)
        self.think_seconds = random.choice((0.05, 0.15, 0.5))
        self.disk_random = Random(f"disk {seed}")
        self.loop = SimLoop(Random(f"loop {seed}"))
        self.network = Network(self.loop, Random(f"network {seed}"))
        self.zookeeper = SimZooKeeper(
            self.loop, Random(f"zookeeper {seed}"), session_timeout_ms=self.scenario.session_timeout_ms
        )
        self.checks = Checks()
        self.machines = [Machine(self, number) for number in range(1, self.scenario.nodes + 1)]
        self.partitions = [TopicPartition(TOPIC, number) for number in range(self.scenario.partitions)]
        self.admin = Admin(self, "admin")
        self.producers = [Producer(self, f"producer-{number}") for number in range(self.scenario.producers)]
        self.careless = CarelessProducer(self, "careless")
        self.consumers = [Consumer(self, f"consumer-{number}") for number in range(self.scenario.consumers)]
        self.desks = [Desk(self, f"desk-{number}") for number in range(self.scenario.desks)]
        self.committed_readers = [CommittedReader(self, "committed-reader")] if self.desks else []
        self.faults = Faults(self, Random(f"faults {seed}"))
        self.is_ending = False
        """No producer begins anything new."""
        self.is_over = False
        self.is_gone = False
        """No node starts any more."""
        self._note = note
        self._random = random
        self._failures: list[BaseException] = []
        self._by_process: dict[Process, Machine] = {}

    @property
    def names(self) -> list[str]:
        """Of all machines and clients."""
        return [*(machine.name for machine in self.machines), *self.client_names]

    @property
    def client_names(self) -> list[str]:
        return [client.name for client in self._clients]

    @property
    def is_moving(self) -> bool:
        """Whether a partition is being reassigned: when it arrives, the controller itself takes replicas out
        of its in-sync set.
        """
        topic = self.zookeeper.tree.get(paths.topic(TOPIC))
        if topic is None:
            return False
        read = TopicZnode.decode(topic.data, TOPIC)
        return bool(read.adding or read.removing)

    @property
    def _clients(self) -> list[Client]:
        return [self.admin, *self._workers]

    @property
    def _workers(self) -> list[Producer | CarelessProducer | Consumer | Desk | CommittedReader | Member]:
        """Clients that work while things go wrong."""
        return [*self.producers, self.careless, *self.consumers, *self.desks, *self.committed_readers]

    # What happens

    def run(self) -> None:
        """The whole run. Raises ViolationError, or SimulationError for one that does not end."""
        loop = self.loop
        self.zookeeper.tree.observe(self._tree_changed)
        loop.after_step = self._after_step
        try:
            with deterministic(self), contextlib.closing(loop):
                try:
                    loop.run_until_complete(self._live())
                finally:
                    self._take_down()
                self._require_end()
        finally:
            asyncio.set_event_loop(None)

    def note(self, who: str, what: str) -> None:
        """Tell whoever follows the run."""
        if self._note is not None:
            self._note(self.loop.time(), who, what)

    def failed(self, who: str, error: BaseException) -> None:
        """Something of the run failed: so does the run."""
        self.note(who, f"failed: {error!r}")
        self._failures.append(error)

    def later(self, within: tuple[float, float], action: Callable[[], None]) -> None:
        """Have the world do something at a drawn time."""
        self.loop.call_later(self._random.uniform(*within), action, context=self.loop.root.context)

    def _after_step(self, process: Process) -> None:
        machine = self._by_process.get(process)
        if machine is None:
            for machine in self.machines:
                if machine.process is process:
                    self._by_process[process] = machine
                    break
            else:
                return
        if machine.process is process:
            self.checks.after_step(machine)

    def _tree_changed(self, data: frozenset[str], children: frozenset[str]) -> None:
        for path in sorted(data):
            if path.startswith("/brokers/ids/") and self.zookeeper.tree.get(path) is not None:
                self.checks.registered(BrokerId(int(path.rpartition("/")[2])))
            if path.startswith("/brokers/topics/") and path.endswith("/state"):
                znode = self.zookeeper.tree.get(path)
                if znode is not None:
                    state = PartitionStateZnode.decode(znode.data, path)
                    _, _, _, topic, _, number, _ = path.split("/")
                    partition = TopicPartition(topic, int(number))
                    self.note(str(partition), f"state {state}")
                    self.checks.in_sync(partition, state)

    # The parts of a run

    async def _live(self) -> None:
        for machine in self.machines:
            self.later((0.0, 0.5), machine.start)
        self.admin.begin([self.admin.create_topic()])
        await self._until(lambda: self.admin.is_done, STARTED_WITHIN_SECONDS, "the topic is not created")
        for client in self._workers:
            client.start(self.partitions)
        await self._trouble()
        await self._rest(self._random.uniform(0.0, 2.0))
        self.note("world", "all faults end")
        self.faults.end()
        self.is_ending = True
        await self._until(self._is_well, HEALED_WITHIN_SECONDS, self._what_is_wrong)
        await self._look_back()
        self.is_over = True
        await self._until(
            lambda: all(each.is_done for each in self._clients), HEALED_WITHIN_SECONDS, "clients do not end"
        )
        # What the administrator asked for last may have begun since.
        await self._until(self._is_well, HEALED_WITHIN_SECONDS, self._what_is_wrong)
        self.checks.final(self.machines, self.partitions)
        for reader in self.committed_readers:
            require_outcomes(self.desks, reader)

    async def _require_offsets(self) -> None:
        """The desks' groups stand where their transactions have put them."""
        for desk in self.desks:
            found: list[int] = []

            async def ask(desk: Desk = desk, found: list[int] = found) -> None:
                found.append(await desk.stands_at(self.partitions[0]))

            desk.begin([ask()])
            await self._until(lambda: bool(found), HEALED_WITHIN_SECONDS, f"{desk.name} hears of no offsets")  # noqa: B023
            if found[0] not in desk.committed_offsets:
                raise ViolationError(
                    f"the group of {desk.name} stands at {found[0]}, not at {desk.committed_offsets}"
                )

    async def _trouble(self) -> None:
        """What goes wrong meanwhile."""
        for _ in range(self.scenario.faults):
            await self._rest(self._random.uniform(0.0, self.scenario.pause_max))
            self.faults.strike()

    async def _look_back(self) -> None:
        """What can be checked only when all is well."""
        await self._require_offsets()

    async def _rest(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        while (left := end - self.loop.time()) > 0:
            await asyncio.sleep(min(left, LOOK_SECONDS))
            self._raise_failure()

    async def _until(
        self, condition: Callable[[], bool], seconds: float, what: str | Callable[[], str]
    ) -> None:
        end = self.loop.time() + seconds
        while not condition():
            if self.loop.time() > end:
                raise ViolationError(f"after {seconds} s: {what if isinstance(what, str) else what()}")
            await asyncio.sleep(LOOK_SECONDS)
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failures:
            failure = self._failures[0]
            raise (
                failure if isinstance(failure, ViolationError) else ViolationError(repr(failure))
            ) from failure
        if self.loop.unexpected:
            raise ViolationError(self.loop.unexpected[0])

    def _is_well(self) -> bool:
        return not self._what_is_wrong()

    def _what_is_wrong(self) -> str:
        """Why it is not as if nothing had happened; empty: it is."""
        for partition in self.partitions:
            hosted = [replica for replica in self._replicas(partition) if replica.machine.assignment.replicas]
            leaders = [replica for replica in hosted if replica.machine.is_leader]
            if len(leaders) != 1:
                return f"{partition} has {len(leaders)} leaders"
            leader = leaders[0]
            if len(leader.machine.isr) != self.scenario.replication_factor:
                return f"{partition}: {leader.machine.isr} are in sync"
            replicas = leader.machine.assignment.replicas
            if len(replicas) != self.scenario.replication_factor:
                return f"{partition} is being moved: {replicas}"
            hosted = [each for each in hosted if each.machine.local in replicas]
            ends = {(each.log.log_end_offset, each.high_watermark) for each in hosted}
            if len(ends) != 1 or len(hosted) != self.scenario.replication_factor:
                return f"{partition}: ends and high watermarks are {ends} of {len(hosted)} replicas"
            if leader.log.log_end_offset != leader.high_watermark:
                return f"{partition}: not all is committed"
            for consumer in self.consumers:
                if consumer.positions[partition] != leader.high_watermark:
                    return f"{consumer.name} is at {consumer.positions[partition]} of {partition}"
            for reader in self.committed_readers:
                if reader.positions[partition] != leader.high_watermark:
                    return f"{reader.name} is at {reader.positions[partition]} of {partition}"
        unfinished = [each.name for each in (*self.producers, self.careless, *self.desks) if not each.is_done]
        return f"{unfinished} wait for acknowledgements" if unfinished else ""

    def _replicas(self, partition: TopicPartition) -> list[Replica]:
        return [
            replica
            for machine in self.machines
            for replica in machine.replicas
            if replica.topic_partition == partition
        ]

    def _take_down(self) -> None:
        """End everything, so that nothing is left behind."""
        loop = self.loop
        loop.after_step = lambda process: None
        self.is_gone = True
        for machine in self.machines:
            machine.kill()
        for client in self._clients:
            loop.end(client.process)
        loop.end(loop.root)
        for _ in range(100):
            if not asyncio.all_tasks(loop):
                return
            loop.run_until_complete(asyncio.sleep(1.0))

    def _require_end(self) -> None:
        if left := asyncio.all_tasks(self.loop):
            raise SimulationError(f"tasks that do not end: {sorted(map(repr, left))}")


@contextlib.contextmanager
def deterministic(world: World) -> Iterator[None]:
    """Whatever the code draws or dials outside its ports comes out of the world."""
    entropy = Random(f"entropy {world.seed}")
    with (
        mock.patch("os.urandom", entropy.randbytes),
        mock.patch("broker.client.connection.open_stream", world.network.open_stream),
    ):
        yield
