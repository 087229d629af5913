"""The topology as data: clusters, routes, and where local state lives. Nothing here reads files.

Keys of the file and fields here carry the same names, except `from` and `to`, which are `source` and
`destination`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NewType

from broker.client.security.connection_security import PLAINTEXT, ConnectionSecurity
from broker.types import HostPort

ClusterName = NewType("ClusterName", str)
RouteName = NewType("RouteName", str)

DEFAULT_TOPIC_TEMPLATE = "{cluster}.{topic}"
LOOPBACK = "127.0.0.1"


class Delivery(Enum):
    """What a crash may do to records on their way."""

    AT_LEAST_ONCE = "at_least_once"


class CopyMode(Enum):
    """How batches cross: AUTO as they are wherever that is exact, DEEP always decoded and built anew."""

    AUTO = "auto"
    DEEP = "deep"


class Compression(Enum):
    """The codec that batches have at the destination."""

    PRESERVE = "preserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSpec:
    """A cluster that this machine runs itself; its nodes listen on `port` and the ports after it."""

    brokers: int
    port: int

    @property
    def bootstrap(self) -> tuple[HostPort, ...]:
        return tuple(HostPort(LOOPBACK, self.port + index) for index in range(self.brokers))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """One cluster: where to find it, or that it is to be run here."""

    name: ClusterName
    bootstrap: tuple[HostPort, ...]
    zookeeper: str | None = None
    embedded: EmbeddedSpec | None = None
    security: ConnectionSecurity = PLAINTEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Topics by full-match regular expressions, and the template of their names at the destination."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    name: str = DEFAULT_TOPIC_TEMPLATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Bounds of one route in one process."""

    buffer_bytes: int = 48 << 20
    """Fetched and not yet acknowledged by the destination, over all partitions."""
    partition_buffer_bytes: int = 8 << 20
    """The same for one partition, so that a slow one cannot take all of the buffer."""
    fetch_bytes: int = 8 << 20
    """Answer size asked of a source broker."""
    fetch_partition_bytes: int = 1 << 20
    """Answer size asked for one partition."""
    produce_bytes: int = 1 << 20
    """Size at which a produce request is full."""
    requests_in_flight: int = 5
    """Produce requests under way to one destination broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSpec:
    """A mirror from one cluster to another."""

    name: RouteName
    source: ClusterName
    destination: ClusterName
    topics: TopicSelection
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    copy: CopyMode = CopyMode.AUTO
    compression: Compression = Compression.PRESERVE
    buckets: int = 16
    """Shares that the work is cut into; at most so many processes can take part in the route."""
    commit_interval_ms: int = 1000
    refresh_interval_ms: int = 5000
    """How often new topics and partitions are looked for."""
    resources: Resources = field(default_factory=Resources)

    @property
    def group(self) -> str:
        """The group that the route's processes form at the source; it keeps the route's positions."""
        return f"mirror/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Everything that one file declares."""

    clusters: Mapping[ClusterName, ClusterSpec]
    routes: tuple[RouteSpec, ...]
    data_dir: Path
    """Where embedded clusters and the daemon keep state."""
