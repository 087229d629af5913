"""The cluster as a node sees it: brokers, topics, and who leads each partition.

Pure and immutable: an update makes a new image that shares whatever did not change. A node's image starts
from ZooKeeper and is kept by the controller's UpdateMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from broker.coordination.znodes import Endpoint
from broker.types import NO_LEADER, BrokerId, HostPort, LeaderEpoch, TopicId, TopicPartition

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """A live broker. `epoch` is the czxid of its registration, -1 where the source does not say."""

    id: BrokerId
    epoch: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None

    def address(self, listener: str = "PLAINTEXT") -> HostPort | None:
        """Where `listener` is reached, None when the broker has no listener of that name."""
        endpoint = self.endpoints.get(listener)
        return endpoint.address if endpoint else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """Roles in one partition. `partition_epoch` is the version of its state znode, -1 before there is one.

    `offline` are the replicas on brokers that are not alive; `adding` and `removing` belong to a
    reassignment.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    partition_epoch: int
    controller_epoch: int
    offline: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; partitions by number."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUpdate:
    """What changed: `brokers` None says none did; `full` says that topics which are not named are gone."""

    controller_id: BrokerId
    controller_epoch: int
    brokers: Mapping[BrokerId, BrokerInfo] | None = None
    partitions: Mapping[TopicPartition, PartitionImage] = field(default_factory=dict)
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    removed: frozenset[TopicPartition] = frozenset()
    full: bool = False

    def merged(self, later: ImageUpdate) -> ImageUpdate:
        """One update with the effect of this one and then `later`."""
        brokers = self.brokers if later.brokers is None else later.brokers
        if later.full:
            return replace(later, brokers=brokers)
        kept = {tp: image for tp, image in self.partitions.items() if tp not in later.removed}
        return ImageUpdate(
            controller_id=later.controller_id,
            controller_epoch=later.controller_epoch,
            brokers=brokers,
            partitions={**kept, **later.partitions},
            topic_ids={**self.topic_ids, **later.topic_ids},
            removed=(self.removed - later.partitions.keys()) | later.removed,
            full=self.full,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Everything a node answers Metadata from."""

    cluster_id: str
    controller_id: BrokerId = NO_LEADER
    controller_epoch: int = UNKNOWN_EPOCH
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[TopicId, str] = field(default_factory=dict)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_of_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic else None

    def apply(self, update: ImageUpdate) -> ClusterImage:
        """The image after `update`. Cost: the number of topics for one shallow copy, and the changes."""
        topics = {} if update.full else dict(self.topics)
        for name, partitions in _by_topic(update.partitions).items():
            topics[name] = _with_partitions(topics.get(name), name, partitions, update.topic_ids)
        for tp in update.removed:
            _remove(topics, tp)
        return replace(
            self,
            controller_id=update.controller_id,
            controller_epoch=update.controller_epoch,
            brokers=self.brokers if update.brokers is None else update.brokers,
            topics=topics,
            names={topic.topic_id: name for name, topic in topics.items()},
        )


def _by_topic(partitions: Mapping[TopicPartition, PartitionImage]) -> dict[str, dict[int, PartitionImage]]:
    topics: dict[str, dict[int, PartitionImage]] = {}
    for tp, image in partitions.items():
        topics.setdefault(tp.topic, {})[tp.partition] = image
    return topics


def _with_partitions(
    topic: TopicImage | None,
    name: str,
    partitions: Mapping[int, PartitionImage],
    topic_ids: Mapping[str, TopicId],
) -> TopicImage:
    """`topic` with some partitions new; a topic of the same name and another id is another topic."""
    if topic is not None and topic_ids.get(name, topic.topic_id) == topic.topic_id:
        return replace(topic, partitions=dict(sorted({**topic.partitions, **partitions}.items())))
    return TopicImage(name=name, topic_id=topic_ids[name], partitions=dict(sorted(partitions.items())))


def _remove(topics: dict[str, TopicImage], tp: TopicPartition) -> None:
    topic = topics.get(tp.topic)
    if topic is None:
        return
    left = {number: image for number, image in topic.partitions.items() if number != tp.partition}
    if left:
        topics[tp.topic] = replace(topic, partitions=left)
    else:
        del topics[tp.topic]
