"""Clusters of real nodes that stand in racks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import cluster_spec


class RackedCluster(ClusterSpec):
    """Broker 1 stands in `rack-1`, and so on."""

    def node_settings(self, index: int) -> dict[str, object]:
        return super().node_settings(index) | {"broker.rack": f"rack-{index + 1}"}


@contextmanager
def racked_cluster(
    zookeeper: EmbeddedZooKeeper, directory: Path, *, brokers: int = 3, settings: Mapping[str, object]
) -> Iterator[EmbeddedCluster]:
    """A running cluster, each of its nodes in a rack of its own."""
    spec = cluster_spec(zookeeper, directory, "racks", brokers=brokers, settings=settings)
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    with EmbeddedCluster(RackedCluster(**fields)) as cluster:
        yield cluster
