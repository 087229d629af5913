"""Clusters of three real nodes whose ways to ZooKeeper can be shut one by one, and what they tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from broker.client.admin import Admin, NewTopic
from broker.client.cluster import Cluster
from broker.client.metadata import TopicMetadata
from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import cluster_spec, forked
from tests.coordination.ensembles import Proxy

SESSION_TIMEOUT_MS = 2_000
CALL_SECONDS = 30
QUICK: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "replica.lag.time.max.ms": 2_000,
    "replica.fetch.backoff.ms": 100,
    "controlled.shutdown.enable": False,
    "num.io.threads": 2,
}


class Door:
    """The way of one node to ZooKeeper, in a thread of its own; shut, it refuses and ends connections."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door")
        self._thread.start()
        self._proxy = Proxy(port)
        self.open()

    @property
    def port(self) -> int:
        return self._proxy.port

    def open(self) -> None:
        """Let through."""
        asyncio.run_coroutine_threadsafe(self._proxy.open(), self._loop).result(CALL_SECONDS)

    def shut(self) -> None:
        """Let nothing through."""
        asyncio.run_coroutine_threadsafe(self._proxy.close(), self._loop).result(CALL_SECONDS)

    def end(self) -> None:
        """Shut it for good."""
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesApart(ClusterSpec):
    """A cluster each of whose nodes has settings of its own."""

    own: Sequence[dict[str, object]]

    def node_settings(self, index: int) -> dict[str, object]:
        return ClusterSpec.node_settings(self, index) | self.own[index]


class ThreeNodes:
    """See the module's description."""

    def __init__(self, cluster: EmbeddedCluster, doors: Sequence[Door], znodes: KazooClient) -> None:
        self.cluster = cluster
        self.doors = dict(enumerate(doors, start=1))
        self.znodes = znodes
        """A session of ZooKeeper below the cluster's chroot."""

    @property
    def bootstrap(self) -> str:
        return ",".join(map(str, self.cluster.bootstrap))

    def ask(self, question: Callable[[Admin], Any], *nodes: int) -> Any:
        """What an administrator's request answers, of any node or of these."""

        async def run() -> Any:
            addresses = [self.cluster.bootstrap[node - 1] for node in nodes or (1, 2, 3)]
            async with Cluster(addresses) as cluster:
                return await question(Admin(cluster))

        return asyncio.run(run())

    def create_topic(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        """A topic whose partitions have these replicas; settings with underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name=name, assignments=dict(enumerate(replicas)), configs=settings)
        self.ask(lambda admin: admin.create_topic(new))

    def describe(self, topic: str, *nodes: int) -> TopicMetadata:
        """The topic as these nodes see it."""
        found: dict[str, TopicMetadata] = self.ask(lambda admin: admin.describe_topics([topic]), *nodes)
        return found[topic]

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """What the state znode of a partition holds."""
        found: dict[str, Any] = self.read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return found

    def read(self, path: str) -> Any:
        return json.loads(self.znodes.get(path)[0])

    def are_in_sync(self, topic: str) -> bool:
        """Whether every partition has a leader and all its replicas in sync, as the znodes say."""
        assignment: dict[str, list[int]] = self.read(f"/brokers/topics/{topic}")["partitions"]
        states = {number: self.state(topic, int(number)) for number in assignment}
        return all(
            state["leader"] >= 0 and set(state["isr"]) == set(assignment[number])
            for number, state in states.items()
        )

    def events(self, node: int, name: str | None = None) -> list[dict[str, Any]]:
        """What a node told, or that part of it."""
        log = self.cluster.spec.directory / f"node-{node}.log"
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if name is None or line["event"] == name]

    def command(self, settings: Path) -> list[str]:
        """What starts a node with these settings."""
        return [sys.executable, "-m", "broker.cli", "start", str(settings)]

    def root(self, node: int) -> Path:
        """The data directory of a node."""
        return self.cluster.spec.directory / f"node-{node}"


@contextlib.contextmanager
def three_nodes(
    zookeeper: EmbeddedZooKeeper, directory: Path, settings: Mapping[str, object] | None = None
) -> Iterator[ThreeNodes]:
    """A running cluster with its files in `directory/cluster`."""
    with contextlib.ExitStack() as stack:
        doors = [Door(zookeeper.port) for _ in range(3)]
        for door in doors:
            stack.callback(door.end)
        plain = cluster_spec(
            zookeeper, directory, "cluster", brokers=3, settings={**QUICK, **(settings or {})}
        )
        chroot = plain.zookeeper_connect.partition("/")[2]
        spec = NodesApart(
            **{field.name: getattr(plain, field.name) for field in fields(plain)},
            own=[{"zookeeper.connect": f"127.0.0.1:{door.port}/{chroot}"} for door in doors],
        )
        cluster = stack.enter_context(EmbeddedCluster(spec, forked))
        znodes = KazooClient(hosts=plain.zookeeper_connect, timeout=30)
        stack.callback(znodes.close)
        stack.callback(znodes.stop)
        znodes.start()
        yield ThreeNodes(cluster, doors, znodes)
