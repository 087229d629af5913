"""Clusters: where they are found, what they are expected to be, and the topics that they should have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.types import HostPort
from mirrormaker.topology.model.names import LOOPBACK, ClusterName
from mirrormaker.topology.model.simulation import SimulatedCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSpec:
    """A cluster that `mirrormaker up` runs on this machine."""

    port: int
    """Port of the first node, on 127.0.0.1; the others take the ports after it."""
    brokers: int = 1
    """How many nodes it has."""
    zookeeper_directory: Path | None = None
    """Where the ZooKeeper of all embedded clusters keeps its files, which tell its address."""

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(HostPort(LOOPBACK, self.port + index) for index in range(self.brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic that a cluster should have, whether or not a route writes it."""

    partitions: int | None = None
    """How many partitions it has; left out, what the cluster gives by itself. Never made fewer."""
    replication: int | None = None
    """Replicas of each partition; left out, what the cluster gives by itself."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the topic, under Kafka's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster: where to find it, or that it is to be run here."""

    name: ClusterName
    bootstrap: tuple[HostPort, ...] = ()
    """Some of its nodes, as `host:port`; the others are found."""
    embedded: EmbeddedSpec | None = None
    """Instead of `bootstrap`: the cluster is run on this machine by `mirrormaker up`."""
    zookeeper: str | None = None
    """Its ZooKeeper, as `host:port[,host:port][/chroot]`; needed by routes whose membership is there, but for
    an embedded cluster, whose is known.
    """
    security: ConnectionSecurity = PLAINTEXT
    """How to reach it with TLS or SASL: options of Kafka's clients. Passwords, tokens and keys stand here by
    reference only, `file:PATH` or `env:NAME`; relative paths are below the file's folder.
    """
    cluster_id: str | None = None
    """The id that it must have; a cluster of another id at these addresses is not touched."""
    datacenter: str | None = None
    """Where it stands; `status` tells it along with routes."""
    round_trip_ms: int | None = None
    """The round trip to expect from where the daemon runs; left out, it is measured."""
    topics: Mapping[str, TopicSpec] = field(default_factory=dict)
    """Topics that it should have, by name; what is lacking is made, what differs is set unless data would be
    lost by it.
    """
    simulate: SimulatedCluster = field(default_factory=SimulatedCluster)
    """What a simulation assumes of it."""
