"""One machine of a simulated cluster: its disk, its clock, and the node that runs on it, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from broker.config import LoadedConfig, NodeConfig
from broker.errors import BrokerError
from broker.node import Node
from broker.replication.replica import Replica
from broker.server.security import Listener, SecurityProtocol
from broker.storage.memory_disk import MemoryDisk
from broker.types import BrokerId, HostPort, TopicPartition
from tests.sim.disk import ProcessDisk
from tests.sim.loop import Process, SimClock
from tests.sim.network import Host
from tests.sim.zookeeper import SimSession

if TYPE_CHECKING:
    from tests.sim.world import World

PORT = 9092
ROOT = Path("/data")
RESTART_SECONDS = (0.1, 2.0)
"""What looks after a node starts it again that long after it ended by itself."""


class Machine:
    """`node` is the one that runs, None while none does."""

    def __init__(self, world: World, number: int) -> None:
        self.id = BrokerId(number)
        self.name = f"node-{number}"
        self.address = HostPort(self.name, PORT)
        self.clock = SimClock(world.loop)
        self.disk = MemoryDisk(self.clock)
        self.node: Node | None = None
        self.process: Process | None = None
        self.session: SimSession | None = None
        self.is_down = True
        """Whether the world wants no node to run."""
        self.is_flushed = False
        """Whether the last node ended in order, and the disk has all that it wrote."""
        self._world = world
        self._stop: asyncio.Event | None = None
        self._starts = 0

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def replicas(self) -> Iterable[Replica]:
        """What the node hosts now."""
        services = getattr(self.node, "_services", None)
        return () if services is None else services.replicas

    def replica(self, partition: TopicPartition) -> Replica | None:
        """The one that the node hosts."""
        return next((each for each in self.replicas if each.topic_partition == partition), None)

    def start(self) -> None:
        """Run the node from now on."""
        self.is_down = False
        world = self._world
        if self.process is not None or world.is_gone:
            return
        self._starts += 1
        self.is_flushed = False
        process = self.process = world.loop.new_process(self.name)
        self.session = world.zookeeper.session(process)
        listener = Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, address=self.address)
        host = Host(world.network, process, listener, lambda error: world.failed(self.name, error))
        self.node = Node(
            LoadedConfig(node=self._config(), given=frozenset()),
            coordination=self.session,
            disk=ProcessDisk(self.disk, process),  # type: ignore[arg-type]
            clock=self.clock,
            rng=Random(f"{world.seed} {self.name} {self._starts}"),
            front=host,
        )
        self._stop = asyncio.Event()
        task = world.loop.create_task(self._live(self.node, self._stop), context=process.context)
        task.add_done_callback(lambda task: self._ended(process, task), context=world.loop.root.context)

    def stop(self) -> None:
        """Ask the node to end in order."""
        self.is_down = True
        if self._stop is not None and self.process is not None:
            self._world.loop.call_soon(self._stop.set, context=self.process.context)

    def kill(self, *, machine: bool = False) -> None:
        """End the process now; with its `machine`, what was not flushed is lost."""
        self.is_down = True
        process = self.process
        if process is not None:
            assert self.session is not None, "a process has one"
            self._world.network.died(process, silently=machine)
            self.session.died(lost=machine)
            self._gone(process)
        if machine:
            self.disk.crash(self._world.disk_random)
        else:
            self.disk.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None and self.session is not None and not self.process.is_paused:
            self._world.loop.pause(self.process)
            self.session.unheard()

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None and self.session is not None and self.process.is_paused:
            self._world.loop.resume(self.process)
            self.session.heard()

    async def _live(self, node: Node, stop: asyncio.Event) -> None:
        async with node.running():
            self._world.note(self.name, "serves")
            await stop.wait()

    def _ended(self, process: Process, task: asyncio.Task[Any]) -> None:
        """The process ended; unless the world has ended it, something starts it again."""
        if process.is_dead:
            if not task.cancelled():
                task.exception()
            return
        error = None if task.cancelled() else task.exception()
        if error is not None and not _is_told(error):
            self._world.failed(self.name, error)
        self._world.note(self.name, f"ended: {error!r}")
        assert self.session is not None, "a process has one"
        self.is_flushed = error is None
        self._world.network.died(process, silently=False)
        self.session.died(lost=False)
        self._gone(process)
        self.disk.kill()
        if not self.is_down:
            self._world.later(RESTART_SECONDS, self._start_again)

    def _start_again(self) -> None:
        if not self.is_down:
            self.start()

    def _gone(self, process: Process) -> None:
        self._world.checks.gone(self)
        self.node = self.process = self.session = self._stop = None
        self._world.loop.end(process)

    def _config(self) -> NodeConfig:
        scenario = self._world.scenario
        settings: dict[str, Any] = {
            "broker_id": int(self.id),
            "listeners": (f"PLAINTEXT://{self.address}",),
            "log_dirs": (str(ROOT),),
            "log_cleaner_enable": False,
            "num_recovery_threads_per_data_dir": 1,
            "zookeeper_session_timeout_ms": scenario.session_timeout_ms,
            "request_timeout_ms": scenario.request_timeout_ms,
            "replica_lag_time_max_ms": scenario.replica_lag_time_max_ms,
            "replica_fetch_wait_max_ms": 300,
            "replica_fetch_backoff_ms": 200,
            "replica_socket_timeout_ms": scenario.request_timeout_ms,
            "num_replica_fetchers": scenario.num_replica_fetchers,
            "replica_high_watermark_checkpoint_interval_ms": 1_000,
            "min_insync_replicas": scenario.min_insync_replicas,
            "log_flush_interval_messages": scenario.flush_messages,
            "log_segment_bytes": scenario.segment_bytes,
            "auto_create_topics_enable": False,
            "broker_rack": self.name,
            "replica_selector_class": "rack" if scenario.reads_from_followers else "leader",
            "leader_imbalance_check_interval_seconds": 5,
            "offsets_commit_timeout_ms": scenario.request_timeout_ms,
            "group_min_session_timeout_ms": 1_000,
            "group_consumer_min_session_timeout_ms": 1_000,
            "group_consumer_session_timeout_ms": 3_000,
            "group_consumer_min_heartbeat_interval_ms": 100,
            "group_consumer_heartbeat_interval_ms": 300,
            "controlled_shutdown_max_retries": 3,
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": 2,
            "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1_000,
            "group_initial_rebalance_delay_ms": 0,
            "controlled_shutdown_retry_backoff_ms": 200,
        }
        known = NodeConfig.__dataclass_fields__
        return NodeConfig(**{name: value for name, value in settings.items() if name in known})


def _is_told(error: BaseException) -> bool:
    """Whether a node may end with it: it says what is wrong with the world."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_told, error.exceptions))
    return isinstance(error, BrokerError)
