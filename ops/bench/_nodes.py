"""Nodes to be measured, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from broker.loopback import free_ports_in_a_row


@contextmanager
def nodes(
    directory: Path, settings: Mapping[str, object], *, brokers: int = 1, timeout_ms: int = 30_000
) -> Iterator[EmbeddedCluster]:
    """A cluster with these settings, whose nodes may take so long to start, and the ZooKeeper it needs."""
    with EmbeddedZooKeeper(directory / "zookeeper", fsync=False) as zookeeper:
        spec = ClusterSpec(
            name="bench",
            zookeeper_connect=zookeeper.connect_string("bench"),
            port=free_ports_in_a_row(brokers),
            directory=directory / "cluster",
            brokers=brokers,
            settings=settings,
            start_timeout_ms=timeout_ms,
        )
        with EmbeddedCluster(spec) as cluster:
            yield cluster
