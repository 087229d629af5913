"""The table of every API: key, name, request and response. Header versions and ApiVersions follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, overload

from broker.wire.message import Message, Request, ResponseType
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from broker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from broker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from broker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from broker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from broker.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from broker.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from broker.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from broker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from broker.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from broker.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from broker.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from broker.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from broker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from broker.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from broker.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from broker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from broker.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from broker.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from broker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from broker.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from broker.wire.messages.fetch import FetchRequest, FetchResponse
from broker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from broker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from broker.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from broker.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from broker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from broker.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from broker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from broker.wire.messages.produce import ProduceRequest, ProduceResponse
from broker.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from broker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from broker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from broker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from broker.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from broker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from broker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


@dataclass(frozen=True, slots=True)
class Api(Generic[ResponseType]):
    """One API. `name` is the protocol's own, such as `ListOffsets`."""

    key: int
    name: str
    request: type[Request[ResponseType]]
    response: type[ResponseType]

    @property
    def min_version(self) -> int:
        return self.request.min_version

    @property
    def max_version(self) -> int:
        return self.request.max_version

    def supports(self, version: int) -> bool:
        """Whether there are tables for `version`."""
        return self.request.min_version <= version <= self.request.max_version

    def request_header_version(self, version: int) -> int:
        """0 has no client id (ControlledShutdown 0 alone), 1 has one, 2 has tagged fields too."""
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.request.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """0 is the correlation id alone, 1 has tagged fields, too. ApiVersions always has 0."""
        return 1 if self.key != API_VERSIONS and self.response.is_flexible(version) else 0


CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18

_TABLE: tuple[Api[Any], ...] = (
    Api(0, "Produce", ProduceRequest, ProduceResponse),
    Api(1, "Fetch", FetchRequest, FetchResponse),
    Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse),
    Api(3, "Metadata", MetadataRequest, MetadataResponse),
    Api(4, "LeaderAndIsr", LeaderAndIsrRequest, LeaderAndIsrResponse),
    Api(5, "StopReplica", StopReplicaRequest, StopReplicaResponse),
    Api(6, "UpdateMetadata", UpdateMetadataRequest, UpdateMetadataResponse),
    Api(7, "ControlledShutdown", ControlledShutdownRequest, ControlledShutdownResponse),
    Api(8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse),
    Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse),
    Api(10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse),
    Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse),
    Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse),
    Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse),
    Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse),
    Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse),
    Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse),
    Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse),
    Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse),
    Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse),
    Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse),
    Api(21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse),
    Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse),
    Api(23, "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(24, "AddPartitionsToTxn", AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(25, "AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(26, "EndTxn", EndTxnRequest, EndTxnResponse),
    Api(27, "WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    Api(28, "TxnOffsetCommit", TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(29, "DescribeAcls", DescribeAclsRequest, DescribeAclsResponse),
    Api(30, "CreateAcls", CreateAclsRequest, CreateAclsResponse),
    Api(31, "DeleteAcls", DeleteAclsRequest, DeleteAclsResponse),
    Api(32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse),
    Api(33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse),
    Api(34, "AlterReplicaLogDirs", AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    Api(35, "DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(36, "SaslAuthenticate", SaslAuthenticateRequest, SaslAuthenticateResponse),
    Api(37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse),
    Api(38, "CreateDelegationToken", CreateDelegationTokenRequest, CreateDelegationTokenResponse),
    Api(39, "RenewDelegationToken", RenewDelegationTokenRequest, RenewDelegationTokenResponse),
    Api(40, "ExpireDelegationToken", ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
    Api(41, "DescribeDelegationToken", DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
    Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse),
    Api(43, "ElectLeaders", ElectLeadersRequest, ElectLeadersResponse),
    Api(44, "IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(
        45,
        "AlterPartitionReassignments",
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    ),
    Api(
        46,
        "ListPartitionReassignments",
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    ),
    Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse),
    Api(48, "DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    Api(49, "AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse),
    Api(
        50,
        "DescribeUserScramCredentials",
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    ),
    Api(51, "AlterUserScramCredentials", AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    Api(56, "AlterPartition", AlterPartitionRequest, AlterPartitionResponse),
    Api(57, "UpdateFeatures", UpdateFeaturesRequest, UpdateFeaturesResponse),
    Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse),
    Api(61, "DescribeProducers", DescribeProducersRequest, DescribeProducersResponse),
    Api(65, "DescribeTransactions", DescribeTransactionsRequest, DescribeTransactionsResponse),
    Api(66, "ListTransactions", ListTransactionsRequest, ListTransactionsResponse),
    Api(67, "AllocateProducerIds", AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    Api(68, "ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    Api(69, "ConsumerGroupDescribe", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    Api(74, "ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse),
    Api(75, "DescribeTopicPartitions", DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
)

APIS: Mapping[int, Api[Any]] = MappingProxyType({api.key: api for api in _TABLE})
"""Every API by its key."""


@overload
def api_of(message: Request[ResponseType] | type[Request[ResponseType]]) -> Api[ResponseType]: ...
@overload
def api_of(message: Message | type[Message]) -> Api[Any]: ...
def api_of(message: Message | type[Message]) -> Api[Any]:
    """The API that a request or response, or its class, belongs to."""
    return APIS[message.api_key]
