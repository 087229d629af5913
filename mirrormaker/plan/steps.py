"""What can be done about a difference, as data. Each step can be taken twice without harm. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.client.access_rule import AccessRule
from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.topology.model import ClusterName, RepairKind, RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """A topic that the cluster lacks. -1 as a number: what the cluster gives by itself."""

    cluster: ClusterName
    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """A topic that has fewer partitions than it should."""

    cluster: ClusterName
    name: str
    have: int
    partitions: int
    """In all, afterwards."""
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A value that holds, None where that is not known, and the one that should."""

    old: str | None
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSettings:
    """A topic whose settings differ."""

    cluster: ClusterName
    name: str
    changes: Mapping[str, SettingChange]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRules:
    """Access rules that a cluster lacks."""

    cluster: ClusterName
    rules: tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptTopic:
    """A topic of the destination that holds records, and that a route without a position is to write: that it
    may is noted in the control topic there, where whoever runs the route finds it.
    """

    route: RouteName
    cluster: ClusterName
    """The destination."""
    name: str
    """The topic there."""
    source: str
    """The topic whose records go there, of several the first by name."""
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRoute:
    """A route that the daemon here does not run yet."""

    route: RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRoute:
    """A route whose bounds or topics change while it goes on."""

    route: RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRoute:
    """A route that becomes another mirror than it is."""

    route: RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRoute:
    """A route that the daemon here runs, and should not."""

    route: RouteName


TopicStep = CreateTopic | AddPartitions | ChangeSettings
ClusterStep = TopicStep | AddRules
RouteStep = StartRoute | ChangeRoute | RestartRoute | StopRoute
Step = ClusterStep | AdoptTopic | RouteStep


def repair_kind(step: ClusterStep) -> RepairKind:
    """Under what a topology speaks of such steps, in `sync.repair`."""
    match step:
        case CreateTopic():
            return RepairKind.TOPICS
        case AddPartitions():
            return RepairKind.PARTITIONS
        case ChangeSettings():
            return RepairKind.CONFIG
        case AddRules():
            return RepairKind.ACLS
