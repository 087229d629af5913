"""The clusters of a topology that this machine runs itself: one ZooKeeper for all, and their nodes."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from broker.embedded import ClusterSpec as EmbeddedClusterSpec
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import require_free_ports
from mirrormaker.topology.loader import ZOOKEEPER_FOLDER
from mirrormaker.topology.model import ClusterName, Topology

NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}
"""On one machine all members of a group come at once: nothing is gained by waiting for more."""

ZOOKEEPER = "zookeeper"


class EmbeddedTopology:
    """Starts every cluster that says `embedded`; a context manager that returns when all are ready.

    State is kept in `data_dir/zookeeper` and `data_dir/clusters/NAME`, and found again by the next start.
    Starting and stopping block. Children die with this process, however it ends. Raises ConfigurationError
    and EmbeddedError.
    """

    def __init__(self, topology: Topology) -> None:
        self.clusters: dict[ClusterName, EmbeddedCluster] = {}
        self.zookeeper: EmbeddedZooKeeper | None = None
        self._topology = topology
        self._stack = ExitStack()

    def start(self) -> None:
        """Start ZooKeeper, then all clusters; on failure nothing is left running."""
        embedded = [cluster for cluster in self._topology.clusters.values() if cluster.embedded is not None]
        if not embedded:
            return
        require_free_ports(address.port for cluster in embedded for address in cluster.bootstrap)
        data_dir = self._topology.data_dir
        with ExitStack() as stack:
            self.zookeeper = stack.enter_context(EmbeddedZooKeeper(data_dir / ZOOKEEPER_FOLDER))
            for cluster in embedded:
                assert cluster.embedded is not None
                spec = EmbeddedClusterSpec(
                    name=cluster.name,
                    zookeeper_connect=self.zookeeper.connect_string(cluster.name),
                    port=cluster.embedded.port,
                    directory=data_dir / "clusters" / cluster.name,
                    brokers=cluster.embedded.brokers,
                    settings=NODE_SETTINGS,
                )
                self.clusters[cluster.name] = stack.enter_context(EmbeddedCluster(spec))
            self._stack = stack.pop_all()

    def stop(self) -> None:
        """Stop the clusters, then ZooKeeper; their data stays."""
        self._stack.close()
        self.clusters.clear()
        self.zookeeper = None

    def ended(self) -> dict[str, str]:
        """What ended by itself, as `zookeeper` or `CLUSTER node N`, with the end of its log."""
        ended = {
            _node_name(name, broker_id): log
            for name, cluster in self.clusters.items()
            for broker_id, log in cluster.dead_nodes().items()
        }
        if self.zookeeper is not None and (log := self.zookeeper.log_if_dead()) is not None:
            ended[ZOOKEEPER] = log
        return ended

    def restart(self, name: str) -> None:
        """Start again what ended, without waiting until it is ready. Raises ConfigurationError and
        EmbeddedError.
        """
        if name == ZOOKEEPER and self.zookeeper is not None:
            self.zookeeper.launch()
        for cluster_name, cluster in self.clusters.items():
            for broker_id in cluster.dead_nodes():
                if name == _node_name(cluster_name, broker_id):
                    cluster.launch_node(broker_id)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _node_name(cluster: ClusterName, broker_id: int) -> str:
    return f"{cluster} node {broker_id}"
