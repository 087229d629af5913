"""What the controller tells a node, as plain values, and how they read on the wire.

The three kinds go out in a fixed order: LeaderAndIsr (roles), UpdateMetadata (image), StopReplica. Orders
that wait for one broker are merged, a later one for the same partition taking the earlier one's place, so
that what waits is bounded by the number of partitions. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from broker.cluster.image import UNKNOWN_EPOCH, BrokerInfo, ImageUpdate, PartitionImage
from broker.coordination.znodes import SECURITY_PROTOCOLS, Endpoint
from broker.errors import ErrorCode
from broker.types import BrokerId, LeaderEpoch, TopicId, TopicPartition
from broker.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from broker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_DURING_DELETE = BrokerId(-2)
"""The leader that UpdateMetadata names for a partition that is being deleted."""
EPOCH_DURING_DELETE = LeaderEpoch(-2)
"""The leader epoch of a StopReplica that deletes: it is above every check."""

_INCREMENTAL, _FULL = 1, 2
_PROTOCOL_NAMES = dict(enumerate(SECURITY_PROTOCOLS))
_SECURITY_PROTOCOLS = {name: number for number, name in _PROTOCOL_NAMES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOrder:
    """Be leader or follower of one partition; `is_new`: the log is not expected to exist."""

    topic_id: TopicId
    image: PartitionImage
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOrders:
    """Everything one broker is to be told. `full_roles`: it has no role in a partition that is not named.
    `deletions`: partitions to stop serving, and whose logs to delete.
    """

    roles: Mapping[TopicPartition, RoleOrder] = field(default_factory=dict)
    full_roles: bool = False
    metadata: ImageUpdate | None = None
    deletions: frozenset[TopicPartition] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.roles or self.full_roles or self.metadata or self.deletions)

    def merged(self, later: BrokerOrders) -> BrokerOrders:
        """One set of orders with the effect of these and then `later`."""
        kept = {} if later.full_roles else self.roles
        roles = {tp: role for tp, role in kept.items() if tp not in later.deletions}
        for tp, role in later.roles.items():
            was_new = tp in self.roles and self.roles[tp].is_new
            roles[tp] = RoleOrder(topic_id=role.topic_id, image=role.image, is_new=role.is_new or was_new)
        if self.metadata is None or later.metadata is None:
            metadata = later.metadata or self.metadata
        else:
            metadata = self.metadata.merged(later.metadata)
        return BrokerOrders(
            roles=roles,
            full_roles=self.full_roles or later.full_roles,
            metadata=metadata,
            deletions=(self.deletions - later.roles.keys()) | later.deletions,
        )


def leader_and_isr_request(
    orders: BrokerOrders,
    *,
    controller_id: BrokerId,
    controller_epoch: int,
    broker_epoch: int,
    brokers: Mapping[BrokerId, BrokerInfo],
    listener: str,
) -> LeaderAndIsrRequest:
    """The roles of `orders` on the wire; leaders are named with where `listener` of them is."""
    leaders = sorted({role.image.leader for role in orders.roles.values()} & brokers.keys())
    return LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=_FULL if orders.full_roles else _INCREMENTAL,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=orders.roles[partitions[0]].topic_id,
                partition_states=[_role_state(tp, orders.roles[tp]) for tp in partitions],
            )
            for topic, partitions in _grouped(orders.roles)
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=address.host, port=address.port)
            for leader in leaders
            if (address := brokers[leader].address(listener)) is not None
        ],
    )


def update_metadata_request(update: ImageUpdate, *, broker_epoch: int) -> UpdateMetadataRequest:
    """An image update on the wire, which always names every live broker."""
    partitions = {
        **update.partitions,
        **dict.fromkeys(update.removed, _removed_image(update.controller_epoch)),
    }
    return UpdateMetadataRequest(
        controller_id=update.controller_id,
        controller_epoch=update.controller_epoch,
        broker_epoch=broker_epoch,
        type=_FULL if update.full else _INCREMENTAL,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=update.topic_ids[topic],
                partition_states=[_metadata_state(tp, partitions[tp]) for tp in numbers],
            )
            for topic, numbers in _grouped(partitions)
        ],
        live_brokers=[_broker_state(broker) for broker in (update.brokers or {}).values()],
    )


def stop_replica_request(
    orders: BrokerOrders, *, controller_id: BrokerId, controller_epoch: int, broker_epoch: int
) -> StopReplicaRequest:
    """The deletions of `orders` on the wire."""
    return StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=tp.partition,
                        leader_epoch=EPOCH_DURING_DELETE,
                        delete_partition=True,
                    )
                    for tp in partitions
                ],
            )
            for topic, partitions in _grouped(orders.deletions)
        ],
    )


def names_all_roles(request: LeaderAndIsrRequest) -> bool:
    """Whether the broker has no role in a partition that is not named."""
    return request.type == _FULL


def named_partitions(request: LeaderAndIsrRequest) -> frozenset[TopicPartition]:
    """Every partition that is named."""
    return frozenset(
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    )


def lost_roles(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> frozenset[TopicPartition]:
    """Partitions whose replica the broker cannot host, as its disk failed."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return frozenset(
        TopicPartition(names[topic.topic_id], partition.partition_index)
        for topic in response.topics
        for partition in topic.partition_errors
        if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR and topic.topic_id in names
    )


def refused_stops(response: StopReplicaResponse) -> frozenset[TopicPartition]:
    """Partitions that a broker could not stop. One that it does not have is stopped."""
    return frozenset(
        TopicPartition(error.topic_name, error.partition_index)
        for error in response.partition_errors
        if ErrorCode.of(error.error_code) not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )


def update_of_metadata(request: UpdateMetadataRequest) -> ImageUpdate:
    """What an UpdateMetadata of any version that names topic ids (7 and later) says. Brokers carry no epoch
    there.
    """
    partitions: dict[TopicPartition, PartitionImage] = {}
    removed: set[TopicPartition] = set()
    for topic in request.topic_states:
        for state in topic.partition_states:
            tp = TopicPartition(topic.topic_name, state.partition_index)
            if state.leader == LEADER_DURING_DELETE:
                removed.add(tp)
            else:
                partitions[tp] = _read_partition(state)
    return ImageUpdate(
        controller_id=BrokerId(request.controller_id),
        controller_epoch=request.controller_epoch,
        brokers={BrokerId(broker.id): _read_broker(broker) for broker in request.live_brokers},
        partitions=partitions,
        topic_ids={topic.topic_name: TopicId(topic.topic_id) for topic in request.topic_states},
        removed=frozenset(removed),
        full=request.type == _FULL,
    )


def _grouped(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    for topic, group in groupby(sorted(partitions), key=lambda tp: tp.topic):
        yield topic, list(group)


def _role_state(tp: TopicPartition, role: RoleOrder) -> LeaderAndIsrPartitionState:
    image = role.image
    return LeaderAndIsrPartitionState(
        partition_index=tp.partition,
        controller_epoch=image.controller_epoch,
        leader=image.leader,
        leader_epoch=image.leader_epoch,
        isr=list(image.isr),
        partition_epoch=image.partition_epoch,
        replicas=list(image.replicas),
        adding_replicas=list(image.adding),
        removing_replicas=list(image.removing),
        is_new=role.is_new,
    )


def _metadata_state(tp: TopicPartition, image: PartitionImage) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=tp.partition,
        controller_epoch=image.controller_epoch,
        leader=image.leader,
        leader_epoch=image.leader_epoch,
        isr=list(image.isr),
        zk_version=image.partition_epoch,
        replicas=list(image.replicas),
        offline_replicas=list(image.offline),
    )


def _removed_image(controller_epoch: int) -> PartitionImage:
    return PartitionImage(
        leader=LEADER_DURING_DELETE,
        leader_epoch=EPOCH_DURING_DELETE,
        isr=(),
        replicas=(),
        partition_epoch=UNKNOWN_EPOCH,
        controller_epoch=controller_epoch,
    )


def _broker_state(broker: BrokerInfo) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_SECURITY_PROTOCOLS[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints.values()
        ],
        rack=broker.rack,
    )


def _read_broker(broker: UpdateMetadataBroker) -> BrokerInfo:
    endpoints = {
        endpoint.listener: Endpoint(
            listener=endpoint.listener,
            host=endpoint.host,
            port=endpoint.port,
            security_protocol=_PROTOCOL_NAMES.get(endpoint.security_protocol, "PLAINTEXT"),
        )
        for endpoint in broker.endpoints
    }
    return BrokerInfo(id=BrokerId(broker.id), epoch=UNKNOWN_EPOCH, endpoints=endpoints, rack=broker.rack)


def _read_partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        isr=tuple(BrokerId(replica) for replica in state.isr),
        replicas=tuple(BrokerId(replica) for replica in state.replicas),
        partition_epoch=state.zk_version,
        controller_epoch=state.controller_epoch,
        offline=tuple(BrokerId(replica) for replica in state.offline_replicas),
    )
