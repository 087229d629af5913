"""Which names mean one cluster, by what clusters tell of themselves. Pure.

An id should be enough. But whoever formats a cluster without ZooKeeper chooses its id, and the one of a
widespread example is in use everywhere. So those with one id are compared by the ids of their topics, which
only one cluster has. Old clusters tell no such ids, and chose their own at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from broker.client.metadata import TopicMetadata
from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import ClusterName


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """What a cluster tells of itself."""

    cluster_id: str
    topic_ids: frozenset[TopicId] | None = None
    """Of all its topics; None where they have none, or were not asked for."""

    @classmethod
    def of(cls, cluster_id: str, topics: Iterable[TopicMetadata | ObservedTopic]) -> Self:
        """By all topics that it lets see."""
        found = frozenset(topic.topic_id for topic in topics if not topic.error)
        return cls(cluster_id=cluster_id, topic_ids=None if NO_TOPIC_ID in found else found)

    def is_same_as(self, other: ClusterIdentity) -> bool:
        """Whether both are one cluster, as far as can be told."""
        if self.cluster_id != other.cluster_id:
            return False
        return self.topic_ids is None or other.topic_ids is None or bool(self.topic_ids & other.topic_ids)


def first_names(
    clusters: Iterable[ClusterName], identities: Mapping[ClusterName, ClusterIdentity]
) -> dict[ClusterName, ClusterName]:
    """For each cluster the first name that stands for the same one; those that nothing is known of stand for
    themselves.
    """
    known: defaultdict[str, list[ClusterName]] = defaultdict(list)
    found: dict[ClusterName, ClusterName] = {}
    for name in clusters:
        found[name] = name
        if (identity := identities.get(name)) is None:
            continue
        alike = known[identity.cluster_id]
        found[name] = next((each for each in alike if identities[each].is_same_as(identity)), name)
        if found[name] == name:
            alike.append(name)
    return found


def twins(
    names: Mapping[ClusterName, ClusterName], identities: Mapping[ClusterName, ClusterIdentity]
) -> dict[ClusterName, ClusterName]:
    """Clusters that have the id of another one, each with such a one; `names` are the first names of all."""
    found: dict[ClusterName, ClusterName] = {}
    known: dict[str, ClusterName] = {}
    for name, first in names.items():
        if name not in identities:
            continue
        other = known.setdefault(identities[name].cluster_id, first)
        if other != first:
            found[name] = other
            found.setdefault(other, name)
    return found
