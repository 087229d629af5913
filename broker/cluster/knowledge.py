"""What a controller knows: brokers, topics, the states of partitions, and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from broker.cluster.election import Electorate
from broker.cluster.events import StoredState
from broker.cluster.image import UNKNOWN_EPOCH, BrokerInfo, ImageUpdate, PartitionImage
from broker.cluster.reassignment import is_moving
from broker.coordination.znodes import TopicZnode
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicPartition


@dataclass(slots=True, kw_only=True)
class Knowledge:
    """One controller's; `epoch` is that of its election.

    Topics are known until they are gone; one that is being deleted is in `deleting` too, with the replicas
    still to be deleted. `lost` are replicas whose disk failed on brokers that live, `unreadable` partitions
    whose state cannot be read, which are left alone until it can, `moving` those that are reassigned.
    """

    controller_id: BrokerId
    epoch: int
    brokers: Mapping[BrokerId, BrokerInfo] = field(default_factory=dict)
    stopping: set[BrokerId] = field(default_factory=set)
    topics: dict[str, TopicZnode] = field(default_factory=dict)
    states: dict[TopicPartition, StoredState] = field(default_factory=dict)
    deleting: dict[str, set[tuple[BrokerId, TopicPartition]]] = field(default_factory=dict)
    lost: dict[TopicPartition, set[BrokerId]] = field(default_factory=dict)
    moving: set[TopicPartition] = field(default_factory=set)
    unreadable: set[TopicPartition] = field(default_factory=set)
    _on_broker: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)

    # Topics that come, change and go

    def adopt(self, name: str, topic: TopicZnode) -> None:
        """Know this topic, in place of what was known under its name."""
        self._forget_replicas(name)
        self.topics[name] = topic
        for partition, replicas in topic.partitions.items():
            tp = TopicPartition(name, partition)
            for replica in replicas:
                self._on_broker.setdefault(replica, set()).add(tp)
            if is_moving(topic, partition):
                self.moving.add(tp)

    def drop(self, name: str) -> None:
        """Know the topic no more."""
        for partition in self.topics[name].partitions:
            tp = TopicPartition(name, partition)
            self.states.pop(tp, None)
            self.lost.pop(tp, None)
            self.unreadable.discard(tp)
        self._forget_replicas(name)
        del self.topics[name]
        self.deleting.pop(name, None)

    def _forget_replicas(self, name: str) -> None:
        known = self.topics.get(name)
        for partition, replicas in known.partitions.items() if known else ():
            tp = TopicPartition(name, partition)
            self.moving.discard(tp)
            for replica in replicas:
                self._on_broker[replica].discard(tp)

    # Questions

    def exists(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and tp.partition in topic.partitions

    def replicas(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        return self.topics[tp.topic].partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> BrokerId:
        stored = self.states.get(tp)
        return stored.state.leader if stored else NO_LEADER

    def isr(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        stored = self.states.get(tp)
        return stored.state.isr if stored else ()

    def leader_epoch(self, tp: TopicPartition) -> LeaderEpoch:
        stored = self.states.get(tp)
        return stored.state.leader_epoch if stored else LeaderEpoch(UNKNOWN_EPOCH)

    def version(self, tp: TopicPartition) -> int | None:
        stored = self.states.get(tp)
        return stored.version if stored else None

    def hosted_by(self, broker_id: BrokerId) -> set[TopicPartition]:
        """Partitions with a replica there, those that are being deleted too."""
        return self._on_broker.get(broker_id, set())

    def led_by(self, broker_id: BrokerId) -> list[TopicPartition]:
        """Partitions with more than one replica that the broker leads."""
        return sorted(
            tp
            for tp in self.hosted_by(broker_id)
            if self.leader(tp) == broker_id and len(self.replicas(tp)) > 1
        )

    def electorate(self, tp: TopicPartition) -> Electorate:
        alive, lost = self.brokers.keys(), self.lost.get(tp)
        return Electorate(alive=alive - lost if lost else alive, stopping=self.stopping)

    def leaderless(self) -> list[TopicPartition]:
        return [tp for tp in self.states if self.leader(tp) == NO_LEADER]

    def all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, p) for name, topic in self.topics.items() for p in topic.partitions]

    def being_deleted(self) -> set[TopicPartition]:
        return {TopicPartition(n, p) for n in self.deleting for p in self.topics[n].partitions}

    # As brokers are told it

    def image(self, tp: TopicPartition) -> PartitionImage:
        """The partition as of now."""
        topic, stored = self.topics[tp.topic], self.states.get(tp)
        replicas = self.replicas(tp)
        alive = self.electorate(tp).alive
        return PartitionImage(
            leader=stored.state.leader if stored else NO_LEADER,
            leader_epoch=self.leader_epoch(tp),
            isr=stored.state.isr if stored else (),
            replicas=replicas,
            partition_epoch=stored.version if stored else UNKNOWN_EPOCH,
            controller_epoch=stored.state.controller_epoch if stored else self.epoch,
            offline=tuple(replica for replica in replicas if replica not in alive),
            adding=topic.adding.get(tp.partition, ()),
            removing=topic.removing.get(tp.partition, ()),
        )

    def update(self, changed: Iterable[TopicPartition], *, full: bool = False) -> ImageUpdate:
        """What tells these partitions, and all brokers."""
        shown = set(changed)
        return ImageUpdate(
            controller_id=self.controller_id,
            controller_epoch=self.epoch,
            brokers=self.brokers,
            partitions={tp: self.image(tp) for tp in shown},
            topic_ids={tp.topic: self.topics[tp.topic].topic_id for tp in shown},
            full=full,
        )
