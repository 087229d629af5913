"""A node to be measured, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports


@contextmanager
def one_node(
    directory: Path, settings: Mapping[str, object], *, timeout_ms: int = 30_000
) -> Iterator[EmbeddedCluster]:
    """A node with these settings, which may take so long to start, and the ZooKeeper that it needs."""
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
        spec = ClusterSpec(
            name="bench",
            zookeeper_connect=zookeeper.connect_string("bench"),
            port=free_ports(1)[0],
            directory=directory / "cluster",
            settings=settings,
        )
        with EmbeddedCluster(spec, timeout_ms=timeout_ms) as cluster:
            yield cluster
