"""The observed world: what the clusters of a topology are and have, at one moment. Plain data, pure.

Observed and desired are different types: what a file asks for is in `topology/model`, what there is stands
here, and only `plan/` compares the two. A cluster that cannot be reached is part of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.client.access_rule import AccessRule
from broker.errors import ErrorCode
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.missing_rights import UNAUTHORIZED_CODES
from mirrormaker.plan.grounds import Grounds
from mirrormaker.topology.model import ClusterName, RouteName

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSetting:
    """A setting of a topic as it holds; `own` where the topic itself says it, rather than the cluster."""

    value: str | None
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTraffic:
    """What is in a partition: offsets `start` to `end` (exclusive)."""

    start: int
    end: int
    day_start: int | None
    """The first offset of the last 24 hours; None where the cluster does not tell."""
    bytes: int | None
    """Size of the leader's log; None where the cluster does not tell."""
    day_ms: float = DAY_MS
    """How long those 24 hours are: as old as its first record, where the partition keeps none from before."""

    @property
    def day_bytes(self) -> float | None:
        """What is there of the last day, as stored: its part of the offsets times their mean size."""
        kept = self.end - self.start
        if self.bytes is None:
            return None
        if not kept:
            return 0.0
        return None if self.day_start is None else self.bytes * (self.end - self.day_start) / kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTopic:
    """A topic of a cluster. `error` says why there is nothing to see of it."""

    name: str
    partitions: int = 0
    replication: int = 1
    """Replicas of the partition that has most."""
    topic_id: TopicId = NO_TOPIC_ID
    internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    config: Mapping[str, ObservedSetting] = field(default_factory=dict)
    """Settings by name; empty where nobody asked or the cluster did not tell."""
    traffic: Mapping[int, PartitionTraffic] = field(default_factory=dict)
    """By partition; without those that could not be asked."""
    rights: frozenset[int] | None = None
    """What may be done with it, by Kafka's codes of operations; None where the cluster does not tell."""

    @property
    def exists(self) -> bool:
        """Whether it is there, as far as the cluster tells."""
        return self.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def is_hidden(self) -> bool:
        """Whether the right to see it is missing; it may not even be there."""
        return self.error in UNAUTHORIZED_CODES

    @property
    def holds_records(self) -> bool:
        """Whether anything is known to be in it, or to have been."""
        return any(partition.end > 0 for partition in self.traffic.values())

    def setting(self, name: str) -> str | None:
        """The value that holds, None while it is not known."""
        found = self.config.get(name)
        return found.value if found is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRights:
    """What a route lacks at a cluster for something that it keeps itself."""

    route: RouteName
    of: str
    """What the rights are about, for people."""
    rights: tuple[int, ...]
    """By Kafka's codes of operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """A cluster that answered."""

    name: ClusterName
    cluster_id: str | None
    """Its real id, whatever it is called here."""
    nodes: int = 1
    topics: Mapping[str, ObservedTopic] = field(default_factory=dict)
    positions: Mapping[RouteName, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """What routes that read here have committed: topic -> partition -> offset."""
    resting: Mapping[RouteName, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)
    """Where they go on by their ledgers in partitions of which no position is known, likewise."""
    untold: frozenset[RouteName] = frozenset()
    """Those of them whose positions it does not tell: they may have some."""
    moved: Mapping[RouteName, Mapping[str, str]] = field(default_factory=dict)
    """Topics whose positions are of copies that went to another topic than now, or to one of that name in
    another cluster, with its name.
    """
    starts: Mapping[RouteName, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """For routes that start at a time: the offset of the first record from then on, -1 where none is."""
    punctual: Mapping[RouteName, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """For routes with a lag objective: the offset from which on records are younger than that, -1 where none
    is.
    """
    grounds: Mapping[RouteName, Grounds] = field(default_factory=dict)
    """What is kept here that tells whether routes may write topics which hold records; only for those whose
    positions do not tell.
    """
    control: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = ()
    """Records of its control topic, keys and values; nothing where no route leads here."""
    groups: tuple[str, ...] | None = None
    """Consumer groups; None where nobody asked, or the cluster did not tell."""
    rules: tuple[AccessRule, ...] | None = None
    """Access rules of topics and groups; None where nobody asked, or there are none to tell."""
    is_open: bool = False
    """It has no authoriser: there are no rules, everybody may do everything."""
    rights: frozenset[int] | None = None
    """What may be done with the cluster; None where it does not tell."""
    creatable: frozenset[str] = frozenset()
    """Topics that may be created though the right to create any is missing."""
    missing_rights: tuple[MissingRights, ...] = ()
    """Of routes from and to here, apart from the topics that they copy, as far as the cluster tells."""
    problems: tuple[str, ...] = ()
    """What could not be asked, each with the reason."""

    def stands(self, route: RouteName) -> dict[str, dict[int, int]]:
        """Where a route goes on, as far as that is known: topic -> partition -> offset."""
        told, found = self.positions.get(route, {}), self.resting.get(route, {})
        return {topic: {**found.get(topic, {}), **told.get(topic, {})} for topic in {**found, **told}}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableCluster:
    """A cluster that did not answer."""

    name: ClusterName
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All clusters of a topology."""

    clusters: Mapping[ClusterName, ObservedCluster | UnreachableCluster]

    def reached(self, name: ClusterName) -> ObservedCluster | None:
        """The cluster, None when it did not answer."""
        found = self.clusters[name]
        return found if isinstance(found, ObservedCluster) else None
