"""The table of every API that a node serves. ApiVersions is answered from it."""

from __future__ import annotations

from broker.server.dispatch import Route
from broker.server.handlers import (
    alter_configs,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    update_metadata,
)
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.create_partitions import CreatePartitionsRequest
from broker.wire.messages.create_topics import CreateTopicsRequest
from broker.wire.messages.delete_groups import DeleteGroupsRequest
from broker.wire.messages.delete_records import DeleteRecordsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest
from broker.wire.messages.describe_cluster import DescribeClusterRequest
from broker.wire.messages.describe_configs import DescribeConfigsRequest
from broker.wire.messages.describe_groups import DescribeGroupsRequest
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from broker.wire.messages.elect_leaders import ElectLeadersRequest
from broker.wire.messages.fetch import FetchRequest
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.heartbeat import HeartbeatRequest
from broker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.join_group import JoinGroupRequest
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from broker.wire.messages.leave_group import LeaveGroupRequest
from broker.wire.messages.list_groups import ListGroupsRequest
from broker.wire.messages.list_offsets import ListOffsetsRequest
from broker.wire.messages.metadata import MetadataRequest
from broker.wire.messages.offset_commit import OffsetCommitRequest
from broker.wire.messages.offset_delete import OffsetDeleteRequest
from broker.wire.messages.offset_fetch import OffsetFetchRequest
from broker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from broker.wire.messages.produce import ProduceRequest
from broker.wire.messages.stop_replica import StopReplicaRequest
from broker.wire.messages.sync_group import SyncGroupRequest
from broker.wire.messages.update_metadata import UpdateMetadataRequest

ROUTES = (
    Route(request=ProduceRequest, handle=produce.handle, refuse=produce.refuse),
    Route(request=FetchRequest, handle=fetch.handle, refuse=fetch.refuse),
    Route(request=ListOffsetsRequest, handle=list_offsets.handle),
    Route(request=MetadataRequest, handle=metadata.handle, refuse=metadata.refuse),
    # Between nodes only what nodes send: older versions lay their partitions out otherwise.
    Route(request=LeaderAndIsrRequest, handle=leader_and_isr.handle, version_min=5),
    Route(request=StopReplicaRequest, handle=stop_replica.handle, version_min=3),
    Route(request=UpdateMetadataRequest, handle=update_metadata.handle, version_min=5),
    Route(request=ControlledShutdownRequest, handle=controlled_shutdown.handle),
    Route(request=OffsetCommitRequest, handle=offset_commit.handle),
    Route(request=OffsetFetchRequest, handle=offset_fetch.handle),
    Route(request=FindCoordinatorRequest, handle=find_coordinator.handle),
    Route(request=JoinGroupRequest, handle=join_group.handle),
    Route(request=HeartbeatRequest, handle=heartbeat.handle),
    Route(request=LeaveGroupRequest, handle=leave_group.handle),
    Route(request=SyncGroupRequest, handle=sync_group.handle),
    Route(request=DescribeGroupsRequest, handle=describe_groups.handle),
    Route(request=ListGroupsRequest, handle=list_groups.handle),
    Route(request=ApiVersionsRequest, handle=api_versions.handle),
    Route(request=CreateTopicsRequest, handle=create_topics.handle),
    Route(request=DeleteTopicsRequest, handle=delete_topics.handle),
    Route(request=DeleteRecordsRequest, handle=delete_records.handle),
    Route(request=InitProducerIdRequest, handle=init_producer_id.handle),
    Route(request=OffsetForLeaderEpochRequest, handle=offset_for_leader_epoch.handle),
    Route(request=DescribeConfigsRequest, handle=describe_configs.handle),
    Route(request=AlterConfigsRequest, handle=alter_configs.handle),
    Route(request=DescribeLogDirsRequest, handle=describe_log_dirs.handle),
    Route(request=CreatePartitionsRequest, handle=create_partitions.handle),
    Route(request=DeleteGroupsRequest, handle=delete_groups.handle),
    Route(request=ElectLeadersRequest, handle=elect_leaders.handle),
    Route(request=IncrementalAlterConfigsRequest, handle=incremental_alter_configs.handle),
    Route(request=OffsetDeleteRequest, handle=offset_delete.handle),
    Route(request=DescribeClusterRequest, handle=describe_cluster.handle),
)

ADVERTISED = tuple(
    ApiVersion(api_key=route.request.api_key, min_version=route.oldest, max_version=route.newest)
    for route in ROUTES
)
"""What ApiVersions tells clients."""
