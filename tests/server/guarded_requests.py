"""A request of every API about things called `secret`, for the tests of what an authoriser refuses.

An API that a node serves and that is not here fails those tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from broker.records.builder import BatchBuilder
from broker.server.security import ResourceKind
from broker.settings import ResourceType
from broker.wire.message import Request
from broker.wire.messages import (
    alter_client_quotas,
    alter_configs,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    offset_delete,
)
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from broker.wire.messages.api_versions import ApiVersionsRequest
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from broker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from broker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from broker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from broker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.wire.messages.offset_delete import OffsetDeleteRequest
from broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.messages.stop_replica import StopReplicaRequest
from broker.wire.messages.sync_group import SyncGroupRequest
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from broker.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from broker.wire.messages.update_metadata import UpdateMetadataRequest
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

SECRET = "secret"
SECRET_CONSUMERS = "secret consumers"
"""A group of the consumer protocol."""

TRANSACTIONS_FROM = 3
BATCHES_FROM = 4
"""First version of Produce that knows transactional ids."""

Build = Callable[[int, UUID], Request[Any]]
"""Makes the request for a version, given the id of the topic `secret`."""


def _produce(version: int, topic_id: UUID) -> ProduceRequest:
    builder = BatchBuilder(
        size_max=1000,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=version >= TRANSACTIONS_FROM,
    )
    builder.append(0, None, b"value")
    data = [PartitionProduceData(index=0, records=builder.build())]
    return ProduceRequest(
        transactional_id=SECRET if version >= TRANSACTIONS_FROM else None,
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=SECRET, partition_data=data)],
    )


def _fetch(version: int, topic_id: UUID) -> FetchRequest:
    wanted = [FetchPartition(partition=0, partition_max_bytes=1000)]
    topic = FetchTopic(topic=SECRET, partitions=wanted) if version < 13 else FetchTopic(partitions=wanted)
    if version >= 13:
        topic.topic_id = topic_id
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])


def _metadata(version: int, topic_id: UUID) -> MetadataRequest:
    asked = [MetadataRequestTopic(name=SECRET)]
    if version >= 12:
        asked.append(MetadataRequestTopic(name=None, topic_id=topic_id))
    return MetadataRequest(topics=asked)


def _delete_topics(version: int, topic_id: UUID) -> DeleteTopicsRequest:
    if version >= 6:
        return DeleteTopicsRequest(
            topics=[DeleteTopicState(name=SECRET), DeleteTopicState(name=None, topic_id=topic_id)]
        )
    return DeleteTopicsRequest(topic_names=[SECRET])


def _join(version: int, topic_id: UUID) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=SECRET,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


def _leave(version: int, topic_id: UUID) -> LeaveGroupRequest:
    if version >= 3:
        return LeaveGroupRequest(group_id=SECRET, members=[MemberIdentity(member_id="m")])
    return LeaveGroupRequest(group_id=SECRET, member_id="m")


def _commit(version: int, topic_id: UUID) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    return OffsetCommitRequest(
        group_id=SECRET, topics=[OffsetCommitRequestTopic(name=SECRET, partitions=partitions)]
    )


def _offset_fetch(version: int, topic_id: UUID) -> OffsetFetchRequest:
    if version >= 8:
        wanted = [OffsetFetchRequestTopics(name=SECRET, partition_indexes=[0])]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=SECRET, topics=wanted)])
    topics = [OffsetFetchRequestTopic(name=SECRET, partition_indexes=[0])]
    return OffsetFetchRequest(group_id=SECRET, topics=topics)


def _find_coordinator(version: int, topic_id: UUID) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=[SECRET])
    return FindCoordinatorRequest(key=SECRET)


def _find_transaction_coordinator(version: int, topic_id: UUID) -> FindCoordinatorRequest:
    request = _find_coordinator(version, topic_id)
    request.key_type = 1 if version else 0
    return request


def _add_partitions(version: int, topic_id: UUID) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=SECRET, partitions=[0])]
    if version < BATCHES_FROM:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=SECRET,
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
    asked = AddPartitionsToTxnTransaction(
        transactional_id=SECRET, producer_id=7, producer_epoch=0, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


def _commit_in_transaction(version: int, topic_id: UUID) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=SECRET,
        group_id=SECRET,
        producer_id=7,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name=SECRET, partitions=[partition])],
    )


CONFIGURED = ((ResourceType.TOPIC, SECRET), (ResourceType.BROKER, "1"), (ResourceType.GROUP, SECRET))


def _alter_configs(version: int, topic_id: UUID) -> AlterConfigsRequest:
    resources = [
        alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in CONFIGURED
    ]
    return AlterConfigsRequest(resources=resources)


def _incremental_alter_configs(version: int, topic_id: UUID) -> IncrementalAlterConfigsRequest:
    resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in CONFIGURED
    ]
    return IncrementalAlterConfigsRequest(resources=resources)


def _describe_configs(version: int, topic_id: UUID) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in CONFIGURED
    ]
    return DescribeConfigsRequest(resources=resources)


def _elect_leaders(version: int, topic_id: UUID) -> ElectLeadersRequest:
    partitions = [elect_leaders.TopicPartitions(topic=SECRET, partitions=[0])]
    return ElectLeadersRequest(topic_partitions=partitions)


def _offset_delete(version: int, topic_id: UUID) -> OffsetDeleteRequest:
    partitions = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [offset_delete.OffsetDeleteRequestTopic(name=SECRET, partitions=partitions)]
    return OffsetDeleteRequest(group_id=SECRET, topics=topics)


def _write_txn_markers(version: int, topic_id: UUID) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic(name=SECRET, partition_indexes=[0])
    marker = WritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic], coordinator_epoch=0)
    return WriteTxnMarkersRequest(markers=[marker])


GUARDED: Mapping[type[Request[Any]], Build] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    ListOffsetsRequest: lambda version, _: ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=SECRET, partitions=[ListOffsetsPartition(timestamp=-1)])]
    ),
    MetadataRequest: _metadata,
    LeaderAndIsrRequest: lambda version, _: LeaderAndIsrRequest(),
    StopReplicaRequest: lambda version, _: StopReplicaRequest(),
    UpdateMetadataRequest: lambda version, _: UpdateMetadataRequest(),
    ControlledShutdownRequest: lambda version, _: ControlledShutdownRequest(broker_id=99),
    OffsetCommitRequest: _commit,
    OffsetFetchRequest: _offset_fetch,
    FindCoordinatorRequest: _find_coordinator,
    JoinGroupRequest: _join,
    HeartbeatRequest: lambda version, _: HeartbeatRequest(group_id=SECRET, member_id="m"),
    LeaveGroupRequest: _leave,
    SyncGroupRequest: lambda version, _: SyncGroupRequest(
        group_id=SECRET, member_id="m", protocol_type="consumer", protocol_name="range"
    ),
    DescribeGroupsRequest: lambda version, _: DescribeGroupsRequest(groups=[SECRET]),
    ListGroupsRequest: lambda version, _: ListGroupsRequest(),
    ApiVersionsRequest: lambda version, _: ApiVersionsRequest(
        client_software_name="tests", client_software_version="1"
    ),
    CreateTopicsRequest: lambda version, _: CreateTopicsRequest(
        topics=[CreatableTopic(name=SECRET, num_partitions=1, replication_factor=1)]
    ),
    DeleteTopicsRequest: _delete_topics,
    DeleteRecordsRequest: lambda version, _: DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=SECRET, partitions=[DeleteRecordsPartition(offset=0)])]
    ),
    InitProducerIdRequest: lambda version, _: InitProducerIdRequest(transactional_id=None),
    OffsetForLeaderEpochRequest: lambda version, _: OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=SECRET, partitions=[OffsetForLeaderPartition()])]
    ),
    DescribeConfigsRequest: _describe_configs,
    AlterConfigsRequest: _alter_configs,
    AlterReplicaLogDirsRequest: lambda version, _: AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/data", topics=[AlterReplicaLogDirTopic(name=SECRET, partitions=[0])])]
    ),
    DescribeLogDirsRequest: lambda version, _: DescribeLogDirsRequest(topics=None),
    CreatePartitionsRequest: lambda version, _: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=SECRET, count=9, assignments=None)], validate_only=True
    ),
    DeleteGroupsRequest: lambda version, _: DeleteGroupsRequest(groups_names=[SECRET]),
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: lambda version, _: AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=SECRET, partitions=[ReassignablePartition(replicas=[1])])]
    ),
    ListPartitionReassignmentsRequest: lambda version, _: ListPartitionReassignmentsRequest(),
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    OffsetDeleteRequest: _offset_delete,
    WriteTxnMarkersRequest: _write_txn_markers,
    DescribeProducersRequest: lambda version, _: DescribeProducersRequest(
        topics=[TopicRequest(name=SECRET, partition_indexes=[0])]
    ),
    DescribeTopicPartitionsRequest: lambda version, _: DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=SECRET)]
    ),
    DescribeClientQuotasRequest: lambda version, _: DescribeClientQuotasRequest(),
    ListConfigResourcesRequest: lambda version, _: ListConfigResourcesRequest(),
    DescribeUserScramCredentialsRequest: lambda version, _: DescribeUserScramCredentialsRequest(),
    AlterClientQuotasRequest: lambda version, _: AlterClientQuotasRequest(
        entries=[
            alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name=SECRET)]
            )
        ],
        validate_only=True,
    ),
    ConsumerGroupHeartbeatRequest: lambda version, _: ConsumerGroupHeartbeatRequest(
        group_id=SECRET_CONSUMERS,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[SECRET],
        topic_partitions=[],
    ),
    ConsumerGroupDescribeRequest: lambda version, _: ConsumerGroupDescribeRequest(
        group_ids=[SECRET_CONSUMERS]
    ),
    DescribeClusterRequest: lambda version, _: DescribeClusterRequest(
        include_cluster_authorized_operations=True
    ),
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: lambda version, _: AddOffsetsToTxnRequest(
        transactional_id=SECRET, producer_id=7, producer_epoch=0, group_id=SECRET
    ),
    EndTxnRequest: lambda version, _: EndTxnRequest(
        transactional_id=SECRET, producer_id=7, producer_epoch=0, committed=True
    ),
    TxnOffsetCommitRequest: _commit_in_transaction,
    DescribeTransactionsRequest: lambda version, _: DescribeTransactionsRequest(transactional_ids=[SECRET]),
    ListTransactionsRequest: lambda version, _: ListTransactionsRequest(),
    UpdateFeaturesRequest: lambda version, _: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="transaction.version", max_version_level=2)],
        validate_only=version >= 1,
    ),
}

OTHERWISE: Mapping[tuple[type[Request[Any]], ResourceKind], Build] = {
    (FindCoordinatorRequest, ResourceKind.TRANSACTIONAL_ID): _find_transaction_coordinator,
    (InitProducerIdRequest, ResourceKind.TRANSACTIONAL_ID): lambda version, _: InitProducerIdRequest(
        transactional_id="another secret", transaction_timeout_ms=1000
    ),
}
"""Requests that need rights on another kind of resource than those above."""

VERSIONS: Mapping[tuple[type[Request[Any]], ResourceKind], range] = {
    (ProduceRequest, ResourceKind.TRANSACTIONAL_ID): range(TRANSACTIONS_FROM, 100),
    (FindCoordinatorRequest, ResourceKind.TRANSACTIONAL_ID): range(1, 100),
    (AddPartitionsToTxnRequest, ResourceKind.TRANSACTIONAL_ID): range(BATCHES_FROM),
    (AddPartitionsToTxnRequest, ResourceKind.TOPIC): range(BATCHES_FROM),
    (AddPartitionsToTxnRequest, ResourceKind.CLUSTER): range(BATCHES_FROM, 100),
}
"""Which versions need rights on a kind of resource, where not all do."""


def guarded(request: type[Request[Any]], kind: ResourceKind) -> Build:
    """What builds a request that needs a right on such a resource."""
    return OTHERWISE.get((request, kind), GUARDED[request])
