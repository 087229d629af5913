"""Clusters of real nodes that stand in racks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.embedded import ClusterSpec, EmbeddedCluster, EmbeddedZooKeeper
from tests.conftest import cluster_spec, forked


@dataclass(frozen=True, kw_only=True)
class RackedCluster(ClusterSpec):
    """Broker 1 stands in the first of `racks`, and so on."""

    racks: Sequence[str]

    def node_settings(self, index: int) -> dict[str, object]:
        return ClusterSpec.node_settings(self, index) | {"broker.rack": self.racks[index]}


@contextmanager
def racked_cluster(
    zookeeper: EmbeddedZooKeeper,
    directory: Path,
    *,
    racks: Sequence[str] = ("rack-1", "rack-2", "rack-3"),
    settings: Mapping[str, object] | None = None,
) -> Iterator[EmbeddedCluster]:
    """A running cluster with a node in each of these racks."""
    spec = cluster_spec(zookeeper, directory, "racks", brokers=len(racks), settings=settings)
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    with EmbeddedCluster(RackedCluster(**fields, racks=racks), forked) as cluster:
        yield cluster
