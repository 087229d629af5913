"""One step of the controller: what an event leads to, collected until its writes are done, and the orders
that follow. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from broker.cluster.image import ImageUpdate, PartitionImage
from broker.cluster.knowledge import Knowledge
from broker.cluster.orders import BrokerOrders, RoleOrder
from broker.coordination.znodes import PartitionStateZnode, TopicZnode
from broker.errors import ErrorCode, ProtocolError
from broker.types import BrokerId, TopicId, TopicPartition


@dataclass(slots=True)
class Step:
    """Filled in while the controller decides.

    `writes` are states and `topics` assignments still to be written, `written` the states that were.
    Everything else says what brokers are to be told: `roles` of these partitions, to every replica;
    `metadata` of these, to everyone; everything to brokers that `joined`, all their roles to those
    `asked_again`. `new` are partitions without a log yet, and `added` replicas that have none. Replicas
    in `deletions` are deleted.
    """

    writes: dict[TopicPartition, PartitionStateZnode] = field(default_factory=dict)
    written: set[TopicPartition] = field(default_factory=set)
    topics: dict[str, TopicZnode] = field(default_factory=dict)
    roles: set[TopicPartition] = field(default_factory=set)
    new: set[TopicPartition] = field(default_factory=set)
    added: set[tuple[BrokerId, TopicPartition]] = field(default_factory=set)
    metadata: set[TopicPartition] = field(default_factory=set)
    brokers_changed: bool = False
    joined: set[BrokerId] = field(default_factory=set)
    asked_again: set[BrokerId] = field(default_factory=set)
    removed: dict[TopicPartition, TopicId] = field(default_factory=dict)
    deletions: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    dismissed: list[str] = field(default_factory=list)
    elections: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    reassignments: dict[TopicPartition, ProtocolError | None] = field(default_factory=dict)

    def orders(self, knowledge: Knowledge) -> dict[BrokerId, BrokerOrders]:
        """What each live broker is to be told of the step."""
        all_joined = self.joined.issuperset(knowledge.brokers)  # so it is when a reign begins
        changes = None if all_joined else self._metadata_changes(knowledge)
        roles = {} if all_joined else self._roles(knowledge)
        whole = _full_metadata(knowledge) if self.joined else None
        images = {} if whole is None else whole.partitions
        orders: dict[BrokerId, BrokerOrders] = {}
        for broker_id in knowledge.brokers:
            joined = broker_id in self.joined
            order = BrokerOrders(
                roles=(
                    self._all_roles(broker_id, knowledge, images)
                    if joined or broker_id in self.asked_again
                    else roles.get(broker_id, {})
                ),
                full_roles=joined,
                metadata=whole if joined else changes,
                deletions=frozenset(self.deletions.get(broker_id, ())),
            )
            if order:
                orders[broker_id] = order
        return orders

    def _metadata_changes(self, knowledge: Knowledge) -> ImageUpdate | None:
        changed = {tp for tp in self.roles | self.metadata if knowledge.exists(tp)}
        if not (changed or self.removed or self.brokers_changed):
            return None
        update = knowledge.update(changed)
        gone = {tp.topic: topic_id for tp, topic_id in self.removed.items()}
        return replace(
            update,
            topic_ids={**gone, **update.topic_ids},
            removed=frozenset(self.removed.keys() - changed),
        )

    def _roles(self, knowledge: Knowledge) -> dict[BrokerId, dict[TopicPartition, RoleOrder]]:
        roles: dict[BrokerId, dict[TopicPartition, RoleOrder]] = {}
        for tp in self.roles:
            role = self._role(tp, knowledge)
            for replica in knowledge.replicas(tp):
                is_added = (replica, tp) in self.added
                roles.setdefault(replica, {})[tp] = replace(role, is_new=True) if is_added else role
        return roles

    def _all_roles(
        self, broker_id: BrokerId, knowledge: Knowledge, images: Mapping[TopicPartition, PartitionImage]
    ) -> dict[TopicPartition, RoleOrder]:
        """`images`: those of partitions that were made already."""
        partitions = knowledge.hosted_by(broker_id) - knowledge.being_deleted()
        return {tp: self._role(tp, knowledge, images.get(tp)) for tp in partitions if tp in knowledge.states}

    def _role(
        self, tp: TopicPartition, knowledge: Knowledge, image: PartitionImage | None = None
    ) -> RoleOrder:
        return RoleOrder(
            topic_id=knowledge.topics[tp.topic].topic_id,
            image=image or knowledge.image(tp),
            is_new=tp in self.new,
        )


def _full_metadata(knowledge: Knowledge) -> ImageUpdate:
    return knowledge.update(set(knowledge.all_partitions()) - knowledge.being_deleted(), full=True)
