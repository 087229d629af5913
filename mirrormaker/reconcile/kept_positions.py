"""What exactly-once routes keep at their destinations of how far they have come, for those who ask which
topics a route has begun. A position is of one source cluster, one topic of it, and one topic that its records
go to, as in `flow/positions`; those of other clusters and other destinations tell nothing here. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.positions import SourceId
from mirrormaker.plan.world import ObservedCluster
from mirrormaker.topology.model import RouteName
from mirrormaker.topology.naming import TopicNaming


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPosition:
    """Of records that were born at the source; `key` as `SourceId` has it."""

    key: Document
    topic: str
    partition: int
    offset: int


KeptPositions = Mapping[RouteName, Iterable[KeptPosition]]


def read_positions(entries: Iterable[tuple[Document, Document]]) -> KeptPositions:
    """Those that records of the topic of positions say."""
    found: dict[RouteName, list[KeptPosition]] = defaultdict(list)
    for key, value in entries:
        if "path" in key:  # of records that were not born at the source: the other position counts
            continue
        match key, value:
            case (
                {"topic": str(topic), "partition": int(partition)},
                {"route": str(route), "position": int(position)},
            ):
                kept = KeptPosition(key=key, topic=topic, partition=partition, offset=position)
                found[RouteName(route)].append(kept)
    return dict(found)


def begun_topics(kept: Iterable[KeptPosition], cluster_id: str | None, naming: TopicNaming) -> frozenset[str]:
    """Topics of that cluster with a position, also of a former topic of the name, where copies go now."""
    return frozenset(
        each.topic
        for each in _of_cluster(kept, cluster_id)
        if each.key.get("to") == naming.destination_of(each.topic)
    )


def moved_topics(
    kept: Iterable[KeptPosition], cluster_id: str | None, naming: TopicNaming, of_group: Mapping[str, str]
) -> dict[str, str]:
    """Topics of that cluster whose copies went elsewhere before, and none of them where they go now, each
    with a topic there; `of_group`: those of which the positions of the route's group say so, which are copies
    of what is kept.
    """
    kept = tuple(kept)
    elsewhere = {each.topic: str(each.key.get("to")) for each in _of_cluster(kept, cluster_id)}
    begun = begun_topics(kept, cluster_id, naming)
    return {topic: to for topic, to in {**of_group, **elsewhere}.items() if topic not in begun}


def current_positions(
    kept: Iterable[KeptPosition], source: ObservedCluster, naming: TopicNaming
) -> dict[str, dict[int, int]]:
    """Where the route goes on: topic -> partition -> offset. A topic that was made anew is read from its
    beginning.
    """
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for each in _of_cluster(kept, source.cluster_id):
        topic = source.topics.get(each.topic)
        to = naming.destination_of(each.topic)
        if topic is None or each.key.get("to") != to:
            continue
        at = SourceId(
            cluster_id=source.cluster_id,
            topic_id=topic.topic_id,
            partition=TopicPartition(each.topic, each.partition),
            to=to,
        )
        if each.key == at.key():
            found[each.topic][each.partition] = each.offset
        else:
            traffic = topic.traffic.get(each.partition)
            found[each.topic].setdefault(each.partition, 0 if traffic is None else traffic.start)
    return dict(found)


def _of_cluster(kept: Iterable[KeptPosition], cluster_id: str | None) -> Iterator[KeptPosition]:
    return (each for each in kept if each.key.get("cluster") == cluster_id)
