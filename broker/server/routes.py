"""The table of every API that a node serves. ApiVersions is answered from it."""

from __future__ import annotations

from collections.abc import Sequence

from broker.server.access import ANYONE, each, on_cluster, on_group
from broker.server.dispatch import Route
from broker.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from broker.server.security import Operation, ResourceKind
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from broker.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.create_partitions import CreatePartitionsRequest
from broker.wire.messages.create_topics import CreateTopicsRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.delete_records import DeleteRecordsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest
from broker.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_configs import DescribeConfigsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.describe_producers import DescribeProducersRequest
from broker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from broker.wire.messages.describe_transactions import DescribeTransactionsRequest
from broker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest
from broker.wire.messages.end_txn import EndTxnRequest
from broker.wire.messages.fetch import FetchRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.join_group import JoinGroupRequest
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from broker.wire.messages.leave_group import LeaveGroupRequest
from broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.list_offsets import ListOffsetsRequest
from broker.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from broker.wire.messages.list_transactions import ListTransactionsRequest
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from broker.wire.messages.offset_delete import OffsetDeleteRequest
from broker.wire.messages.offset_fetch import OffsetFetchRequest
from broker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from broker.wire.messages.produce import ProduceRequest
from broker.wire.messages.stop_replica import StopReplicaRequest
from broker.wire.messages.sync_group import SyncGroupRequest
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from broker.wire.messages.update_features import UpdateFeaturesRequest
from broker.wire.messages.update_metadata import UpdateMetadataRequest
from broker.wire.messages.write_txn_markers import WriteTxnMarkersRequest

ROUTES = (
    Route(
        request=ProduceRequest,
        rule=each((Operation.WRITE, ResourceKind.TOPIC), (Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)),
        handle=produce.handle,
        refuse=produce.refuse,
    ),
    Route(
        request=FetchRequest,
        rule=each((Operation.READ, ResourceKind.TOPIC)),
        handle=fetch.handle,
        refuse=fetch.refuse,
    ),
    Route(
        request=ListOffsetsRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=list_offsets.handle,
    ),
    Route(
        request=MetadataRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=metadata.handle,
        refuse=metadata.refuse,
    ),
    # Between nodes only what nodes send: older versions lay their partitions out otherwise.
    Route(
        request=LeaderAndIsrRequest,
        rule=on_cluster(Operation.CLUSTER_ACTION),
        handle=leader_and_isr.handle,
        version_min=5,
    ),
    Route(
        request=StopReplicaRequest,
        rule=on_cluster(Operation.CLUSTER_ACTION),
        handle=stop_replica.handle,
        version_min=3,
    ),
    Route(
        request=UpdateMetadataRequest,
        rule=on_cluster(Operation.CLUSTER_ACTION),
        handle=update_metadata.handle,
        version_min=5,
    ),
    Route(
        request=ControlledShutdownRequest,
        rule=on_cluster(Operation.CLUSTER_ACTION),
        handle=controlled_shutdown.handle,
    ),
    Route(
        request=OffsetCommitRequest,
        rule=on_group(Operation.READ, (Operation.READ, ResourceKind.TOPIC)),
        handle=offset_commit.handle,
        refuse=offset_commit.refuse,
    ),
    Route(
        request=OffsetFetchRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.GROUP), (Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=offset_fetch.handle,
        refuse=offset_fetch.refuse,
    ),
    Route(
        request=FindCoordinatorRequest,
        rule=each(
            (Operation.DESCRIBE, ResourceKind.GROUP), (Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
        ),
        handle=find_coordinator.handle,
    ),
    Route(request=JoinGroupRequest, rule=on_group(Operation.READ), handle=join_group.handle),
    Route(request=HeartbeatRequest, rule=on_group(Operation.READ), handle=heartbeat.handle),
    Route(request=LeaveGroupRequest, rule=on_group(Operation.READ), handle=leave_group.handle),
    Route(request=SyncGroupRequest, rule=on_group(Operation.READ), handle=sync_group.handle),
    Route(
        request=DescribeGroupsRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.GROUP)),
        handle=describe_groups.handle,
    ),
    Route(
        request=ListGroupsRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.GROUP)),
        handle=list_groups.handle,
    ),
    Route(request=ApiVersionsRequest, rule=ANYONE, handle=api_versions.handle),
    Route(
        request=CreateTopicsRequest,
        rule=each((Operation.CREATE, ResourceKind.TOPIC)),
        handle=create_topics.handle,
    ),
    Route(
        request=DeleteTopicsRequest,
        rule=each((Operation.DELETE, ResourceKind.TOPIC), (Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=delete_topics.handle,
    ),
    Route(
        request=DeleteRecordsRequest,
        rule=each((Operation.DELETE, ResourceKind.TOPIC)),
        handle=delete_records.handle,
    ),
    Route(
        request=InitProducerIdRequest,
        rule=each(
            (Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER),
            (Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
        ),
        handle=init_producer_id.handle,
        refuse=init_producer_id.refuse,
    ),
    Route(
        request=OffsetForLeaderEpochRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=offset_for_leader_epoch.handle,
    ),
    Route(
        request=AddPartitionsToTxnRequest,
        rule=each(
            (Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
            (Operation.WRITE, ResourceKind.TOPIC),
            (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER),
        ),
        handle=add_partitions_to_txn.handle,
        refuse=add_partitions_to_txn.refuse,
    ),
    Route(
        request=AddOffsetsToTxnRequest,
        rule=each((Operation.WRITE, ResourceKind.TRANSACTIONAL_ID), (Operation.READ, ResourceKind.GROUP)),
        handle=add_offsets_to_txn.handle,
    ),
    Route(
        request=EndTxnRequest,
        rule=each((Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)),
        handle=end_txn.handle,
    ),
    Route(
        request=WriteTxnMarkersRequest,
        # To end what hangs is administration, too (KAFKA-16513).
        rule=on_cluster(Operation.CLUSTER_ACTION, instead=Operation.ALTER),
        handle=write_txn_markers.handle,
        refuse=write_txn_markers.refuse,
    ),
    Route(
        request=TxnOffsetCommitRequest,
        rule=each(
            (Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
            (Operation.READ, ResourceKind.GROUP),
            (Operation.READ, ResourceKind.TOPIC),
        ),
        handle=txn_offset_commit.handle,
        refuse=txn_offset_commit.refuse,
    ),
    Route(
        request=DescribeConfigsRequest,
        rule=each(
            (Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC),
            (Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER),
            (Operation.DESCRIBE_CONFIGS, ResourceKind.GROUP),
        ),
        handle=describe_configs.handle,
    ),
    Route(
        request=AlterConfigsRequest,
        rule=each(
            (Operation.ALTER_CONFIGS, ResourceKind.TOPIC),
            (Operation.ALTER_CONFIGS, ResourceKind.CLUSTER),
            (Operation.ALTER_CONFIGS, ResourceKind.GROUP),
        ),
        handle=alter_configs.handle,
    ),
    Route(
        request=AlterReplicaLogDirsRequest,
        rule=on_cluster(Operation.ALTER),
        handle=alter_replica_log_dirs.handle,
        refuse=alter_replica_log_dirs.refuse,
    ),
    Route(
        request=DescribeLogDirsRequest,
        rule=on_cluster(Operation.DESCRIBE),
        handle=describe_log_dirs.handle,
        refuse=describe_log_dirs.refuse,
    ),
    Route(
        request=CreatePartitionsRequest,
        rule=each((Operation.ALTER, ResourceKind.TOPIC)),
        handle=create_partitions.handle,
    ),
    Route(
        request=DeleteGroupsRequest,
        rule=each((Operation.DELETE, ResourceKind.GROUP)),
        handle=delete_groups.handle,
    ),
    Route(
        request=ElectLeadersRequest,
        rule=on_cluster(Operation.ALTER),
        handle=elect_leaders.handle,
        refuse=elect_leaders.refuse,
    ),
    Route(
        request=AlterPartitionReassignmentsRequest,
        rule=on_cluster(Operation.ALTER),
        handle=alter_partition_reassignments.handle,
    ),
    Route(
        request=ListPartitionReassignmentsRequest,
        rule=on_cluster(Operation.DESCRIBE),
        handle=list_partition_reassignments.handle,
    ),
    Route(
        request=IncrementalAlterConfigsRequest,
        rule=each(
            (Operation.ALTER_CONFIGS, ResourceKind.TOPIC),
            (Operation.ALTER_CONFIGS, ResourceKind.CLUSTER),
            (Operation.ALTER_CONFIGS, ResourceKind.GROUP),
        ),
        handle=incremental_alter_configs.handle,
    ),
    Route(
        request=OffsetDeleteRequest,
        rule=on_group(Operation.DELETE, (Operation.READ, ResourceKind.TOPIC)),
        handle=offset_delete.handle,
    ),
    Route(
        request=DescribeClientQuotasRequest,
        rule=on_cluster(Operation.DESCRIBE_CONFIGS),
        handle=describe_client_quotas.handle,
        refuse=describe_client_quotas.refuse,
    ),
    Route(
        request=AlterClientQuotasRequest,
        rule=on_cluster(Operation.ALTER_CONFIGS),
        handle=alter_client_quotas.handle,
        refuse=alter_client_quotas.refuse,
    ),
    Route(
        request=DescribeUserScramCredentialsRequest,
        rule=on_cluster(Operation.DESCRIBE),
        handle=describe_user_scram_credentials.handle,
        refuse=describe_user_scram_credentials.refuse,
    ),
    Route(
        request=UpdateFeaturesRequest,
        rule=on_cluster(Operation.ALTER),
        handle=update_features.handle,
        refuse=update_features.refuse,
    ),
    Route(request=DescribeClusterRequest, rule=ANYONE, handle=describe_cluster.handle),
    Route(
        request=ConsumerGroupHeartbeatRequest,
        rule=on_group(Operation.READ, (Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=consumer_group_heartbeat.handle,
    ),
    Route(
        request=ConsumerGroupDescribeRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.GROUP), (Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=consumer_group_describe.handle,
    ),
    Route(
        request=DescribeProducersRequest,
        rule=each((Operation.READ, ResourceKind.TOPIC)),
        handle=describe_producers.handle,
    ),
    Route(
        request=DescribeTransactionsRequest,
        rule=each(
            (Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID), (Operation.DESCRIBE, ResourceKind.TOPIC)
        ),
        handle=describe_transactions.handle,
    ),
    Route(
        request=ListTransactionsRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)),
        handle=list_transactions.handle,
    ),
    Route(
        request=ListConfigResourcesRequest,
        rule=on_cluster(Operation.DESCRIBE_CONFIGS),
        handle=list_config_resources.handle,
        refuse=list_config_resources.refuse,
    ),
    Route(
        request=DescribeTopicPartitionsRequest,
        rule=each((Operation.DESCRIBE, ResourceKind.TOPIC)),
        handle=describe_topic_partitions.handle,
        refuse=describe_topic_partitions.refuse,
    ),
)

NAMING_ROUTES: tuple[Route, ...] = tuple(
    route
    for route in ROUTES
    if route.request in (ApiVersionsRequest, MetadataRequest, FindCoordinatorRequest, DescribeClusterRequest)
)
"""What a name server serves."""


def advertised(routes: Sequence[Route]) -> tuple[ApiVersion, ...]:
    """What ApiVersions tells clients."""
    return tuple(
        ApiVersion(api_key=route.request.api_key, min_version=route.oldest, max_version=route.newest)
        for route in routes
    )


ADVERTISED = advertised(ROUTES)
