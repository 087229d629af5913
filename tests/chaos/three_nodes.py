"""A cluster of three nodes that can be broken: each part has its way, and its way back.

Clients reach the nodes directly, the nodes one another and ZooKeeper through a `Network`. Each node's disk
is a small tmpfs of its own, where mounting is permitted. Nodes that are to come back are started by threads,
again and again while what they need is away, so that other things break meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.child_process import EmbeddedError
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import LOOPBACK, free_ports_in_a_row
from broker.types import HostPort
from tests.chaos.journal import Journal
from tests.chaos.load import PATIENCE_SECONDS, NotInTimeError
from tests.chaos.network import Network, Place, owner_of
from tests.conftest import cluster_spec
from tests.node.file_systems import mounted_tmpfs

NODES = (1, 2, 3)
ZOOKEEPER = "zookeeper"
DISK_BYTES = 640 << 20
LISTENERS = "CLIENTS://{clients},NODES://{nodes}"


def place(broker_id: int) -> Place:
    """What a node is called in the network."""
    return f"node {broker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesApart(ClusterSpec):
    """A cluster each of whose nodes has settings of its own."""

    own: Sequence[Mapping[str, object]]

    def node_settings(self, index: int) -> dict[str, object]:
        return ClusterSpec.node_settings(self, index) | self.own[index]


class ThreeNodes:
    """See the module's description; `three_nodes` makes one."""

    def __init__(
        self, cluster: EmbeddedCluster, zookeeper: EmbeddedZooKeeper, network: Network, journal: Journal
    ) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.network = network
        self.journal = journal
        self.has_disks = False
        self._starters = ThreadPoolExecutor(len(NODES), "starter")
        self._starting: dict[int, Future[None]] = {}
        self._is_over = threading.Event()

    @property
    def bootstrap(self) -> str:
        """The addresses for clients."""
        return ",".join(map(str, self.cluster.bootstrap))

    def root(self, broker_id: int) -> Path:
        """The data directory of a node, and the file system of its own."""
        return self.cluster.spec.directory / f"node-{broker_id}"

    @property
    def roots(self) -> list[Path]:
        """The data directories of all nodes."""
        return [self.root(broker_id) for broker_id in NODES]

    # Processes

    def kill(self, broker_id: int) -> None:
        """Kill a node that runs."""
        self.cluster.kill_node(broker_id)

    def start_soon(self, broker_id: int) -> None:
        """Have a node start, and again where it ends before it is ready; `settle` waits for it."""
        self._starting[broker_id] = self._starters.submit(self._start, broker_id)

    def settle(self) -> None:
        """Wait until all nodes are ready. Raises NotInTimeError, EmbeddedError when one died by itself."""
        while self._starting:
            broker_id, starting = self._starting.popitem()
            starting.result()
        for broker_id, log in self.cluster.dead_nodes().items():
            raise EmbeddedError(f"node {broker_id} ended by itself:\n{log}")

    def _start(self, broker_id: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_over.is_set():
            try:
                self.cluster.start_node(broker_id)
            except EmbeddedError as error:
                self.cluster.kill_node(broker_id)
                self.journal.note(f"node {broker_id} did not start: {str(error).splitlines()[0]}")
                if time.monotonic() > deadline:
                    raise NotInTimeError(f"node {broker_id} does not come back: {error}") from error
            else:
                self.journal.note(f"node {broker_id} is ready")
                return

    def signal(self, broker_id: int, number: signal.Signals) -> None:
        """Send a signal to a node that runs."""
        os.kill(self.cluster.pids[broker_id], number)

    # Disks

    def fill(self, broker_id: int, left: int) -> None:
        """Take all room of the node's disk but so many bytes."""
        ballast = self._ballast(broker_id)
        free = shutil.disk_usage(self.root(broker_id)).free
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, free - left))

    def make_room(self, broker_id: int) -> None:
        """Give the room back."""
        self._ballast(broker_id).unlink(missing_ok=True)

    def _ballast(self, broker_id: int) -> Path:
        return self.root(broker_id) / "ballast"

    # The end

    def keep_evidence(self) -> None:
        """Kill all nodes and leave what is on their disks in the cluster's directory."""
        for broker_id in list(self.cluster.pids):
            self.kill(broker_id)
        for broker_id in NODES if self.has_disks else ():
            self.make_room(broker_id)
            kept = self.cluster.spec.directory / f"kept-{broker_id}"
            shutil.copytree(self.root(broker_id), kept)
        self.journal.note(f"logs and data are in {self.cluster.spec.directory}")

    def close(self) -> None:
        """End the starters."""
        self._is_over.set()
        self._starters.shutdown()


@contextlib.contextmanager
def three_nodes(
    zookeeper: EmbeddedZooKeeper, directory: Path, journal: Journal, settings: Mapping[str, object]
) -> Iterator[ThreeNodes]:
    """A running cluster in `directory/cluster`; after a failure what was on its disks lies in there too."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())
        cluster = EmbeddedCluster(_spec(zookeeper, directory, network, settings, lambda: cluster.pids))
        nodes = ThreeNodes(cluster, zookeeper, network, journal)
        with contextlib.suppress(pytest.skip.Exception):
            for broker_id in NODES:
                stack.enter_context(mounted_tmpfs(nodes.root(broker_id), size=DISK_BYTES))
            nodes.has_disks = True
        stack.callback(nodes.close)
        try:
            cluster.start()
            yield nodes
        except BaseException:
            nodes.keep_evidence()
            raise
        finally:
            cluster.stop()


def _spec(
    zookeeper: EmbeddedZooKeeper,
    directory: Path,
    network: Network,
    settings: Mapping[str, object],
    pids: Callable[[], dict[int, int]],
) -> ClusterSpec:
    """Nodes with a listener of their own for other nodes, who are told an address in the network."""
    plain = cluster_spec(zookeeper, directory, "cluster", brokers=len(NODES), settings=settings)
    chroot = plain.zookeeper_connect.partition("/")[2]

    def owner(port: int) -> Place | None:
        broker_id = owner_of(port, pids())
        return place(broker_id) if broker_id is not None else None

    def own_settings(broker_id: int) -> dict[str, object]:
        own = place(broker_id)
        clients, nodes = plain.bootstrap[broker_id - 1], HostPort(LOOPBACK, free_ports_in_a_row(1))
        keeper = network.listen(ZOOKEEPER, zookeeper.address, lambda _: own)
        return {
            "listeners": LISTENERS.format(clients=clients, nodes=nodes),
            "advertised.listeners": LISTENERS.format(
                clients=clients, nodes=network.listen(own, nodes, owner)
            ),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,NODES:PLAINTEXT",
            "inter.broker.listener.name": "NODES",
            "zookeeper.connect": f"{keeper}/{chroot}",
        }

    return NodesApart(
        name=plain.name,
        zookeeper_connect=plain.zookeeper_connect,
        port=plain.port,
        directory=plain.directory,
        brokers=plain.brokers,
        settings=plain.settings,
        own=[own_settings(broker_id) for broker_id in NODES],
    )
