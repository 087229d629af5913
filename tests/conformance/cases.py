"""The table of cases: which APIs they try, and from which version to which."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.wire.message import Request
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from broker.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from broker.wire.messages.alter_configs import AlterConfigsRequest
from broker.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from broker.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from broker.wire.messages.api_versions import ApiVersionsRequest
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
from tests.conformance import consumer_group_cases as consumer_groups
from tests.conformance import coordinated_cases as coordinated
from tests.conformance import group_cases as groups
from tests.conformance import node_cases as nodes
from tests.conformance import quota_cases as quotas
from tests.conformance import record_cases as records
from tests.conformance import topic_cases as topics
from tests.conformance import transaction_cases as transactions
from tests.conformance.scene import Scene

Play = Callable[[Scene, int], Awaitable[None]]

BETWEEN_NODES = (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    ControlledShutdownRequest,
)
"""APIs that only nodes use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One outcome of one API, the same in every version from `first` on."""

    request: type[Request[Any]]
    play: Play
    first: int = 0

    def versions(self, newest: int) -> range:
        """The versions it is played in where `newest` is the newest served."""
        return range(self.first, newest + 1)


def _cases(request: type[Request[Any]], *plays: Play | tuple[Play, int]) -> Iterator[Case]:
    for play in plays:
        if isinstance(play, tuple):
            yield Case(request=request, play=play[0], first=play[1])
        else:
            yield Case(request=request, play=play)


CASES: tuple[Case, ...] = (
    *_cases(
        ProduceRequest,
        records.produce_appends,
        records.produce_appends_to_many_partitions,
        records.produce_stamps_with_the_time_of_append,
        records.produce_without_acks_is_not_answered,
        (records.produce_repeats_are_answered_with_their_offset, 3),
        records.produce_to_an_unknown_topic_is_refused,
        records.produce_to_an_unknown_partition_is_refused,
        records.produce_of_damaged_records_is_refused,
        (records.produce_with_unknown_acks_is_refused, 1),
        (records.produce_of_zstd_needs_version_7, 3),
        records.produce_of_a_too_large_batch_is_refused,
    ),
    *_cases(
        FetchRequest,
        records.fetch_reads_records,
        (records.fetch_reads_committed_records, 4),
        records.fetch_at_the_end_is_empty,
        records.fetch_at_the_end_waits_no_longer_than_it_is_told,
        records.fetch_out_of_range_is_refused,
        records.fetch_of_an_unknown_topic_is_refused,
        records.fetch_of_an_unknown_partition_is_refused,
        records.fetch_answers_each_partition_by_itself,
        (records.fetch_in_another_leader_epoch_is_refused, 9),
        (records.fetch_in_an_unknown_session_is_refused, 7),
    ),
    *_cases(
        ListOffsetsRequest,
        records.list_offsets_finds_both_ends,
        (records.list_offsets_finds_a_time, 1),
        (records.list_offsets_finds_the_largest_time, 7),
        (records.list_offsets_finds_the_local_start, 8),
        (records.list_offsets_finds_nothing_in_tiers, 9),
        records.list_offsets_of_the_unknown_is_refused,
        (records.list_offsets_in_another_leader_epoch_is_refused, 4),
    ),
    *_cases(
        OffsetForLeaderEpochRequest,
        records.offset_for_leader_epoch_tells_where_it_ends,
        records.offset_for_leader_epoch_knows_no_future,
        records.offset_for_leader_epoch_of_the_unknown_is_refused,
        (records.offset_for_leader_epoch_in_another_epoch_is_refused, 2),
    ),
    *_cases(
        DeleteRecordsRequest,
        records.delete_records_lets_the_log_start_later,
        records.delete_records_past_the_end_is_refused,
        records.delete_records_of_an_unknown_topic_is_refused,
    ),
    *_cases(
        InitProducerIdRequest,
        records.init_producer_id_gives_a_fresh_id,
        records.init_producer_id_refuses_an_empty_transactional_id,
        coordinated.init_producer_id_gives_every_owner_of_an_id_an_epoch,
        coordinated.init_producer_id_refuses_a_timeout_that_is_too_long,
    ),
    *_cases(
        AddPartitionsToTxnRequest,
        coordinated.add_partitions_to_txn_begins_a_transaction,
        coordinated.add_partitions_to_txn_refuses_what_cannot_be,
    ),
    *_cases(
        AddOffsetsToTxnRequest,
        coordinated.add_offsets_to_txn_begins_a_transaction,
        coordinated.add_offsets_to_txn_refuses_strangers,
    ),
    *_cases(
        EndTxnRequest,
        coordinated.end_txn_decides_a_transaction,
        coordinated.end_txn_may_be_repeated,
        coordinated.end_txn_refuses_what_cannot_be,
    ),
    *_cases(
        TxnOffsetCommitRequest,
        coordinated.txn_offset_commit_counts_when_its_transaction_commits,
        coordinated.txn_offset_commit_refuses_what_cannot_be,
    ),
    *_cases(DescribeTransactionsRequest, coordinated.describe_transactions_tells_who_owns_an_id),
    *_cases(ListTransactionsRequest, coordinated.list_transactions_lists_what_is_asked_for),
    *_cases(DescribeUserScramCredentialsRequest, quotas.describe_user_scram_credentials_finds_none),
    *_cases(UpdateFeaturesRequest, coordinated.update_features_refuses_what_is_not_known),
    *_cases(
        WriteTxnMarkersRequest,
        transactions.write_txn_markers_are_stored_without_a_transaction_too,
        transactions.write_txn_markers_of_the_deposed_are_fenced,
        transactions.write_txn_markers_into_the_unknown_is_refused,
    ),
    *_cases(
        DescribeProducersRequest,
        transactions.describe_producers_shows_what_is_remembered,
        transactions.describe_producers_of_the_unknown_is_refused,
    ),
    *_cases(
        MetadataRequest,
        topics.metadata_describes_a_topic,
        (topics.metadata_describes_a_topic_by_id, 10),
        (topics.metadata_looks_at_no_name_beside_an_id, 12),
        topics.metadata_describes_all_topics,
        (topics.metadata_of_no_topics_describes_none, 1),
        (topics.metadata_of_a_missing_topic_is_an_error, 4),
        topics.metadata_of_an_impossible_name_is_an_error,
        topics.metadata_creates_a_missing_topic,
    ),
    *_cases(
        CreateTopicsRequest,
        topics.create_topics_creates,
        topics.create_topics_places_replicas_as_told,
        topics.create_topics_takes_the_defaults,
        (topics.create_topics_validates_only, 1),
        topics.create_topics_refuses_what_cannot_be,
    ),
    *_cases(
        DeleteTopicsRequest,
        topics.delete_topics_deletes_by_name,
        (topics.delete_topics_deletes_by_id, 6),
        (topics.delete_topics_refuses_an_unknown_id, 6),
        topics.delete_topics_refuses_an_unknown_name,
    ),
    *_cases(
        CreatePartitionsRequest,
        topics.create_partitions_grows_a_topic,
        topics.create_partitions_refuses_what_cannot_be,
    ),
    *_cases(DescribeTopicPartitionsRequest, topics.describe_topic_partitions_describes_a_topic),
    *_cases(
        ListConfigResourcesRequest,
        topics.list_config_resources_lists_by_type,
        (topics.list_config_resources_refuses_unknown_types, 1),
    ),
    *_cases(
        DescribeConfigsRequest,
        topics.describe_configs_describes_a_topic,
        topics.describe_configs_describes_what_is_asked_for,
        topics.describe_configs_describes_the_node,
        topics.describe_configs_of_the_unknown_is_refused,
    ),
    *_cases(
        AlterConfigsRequest,
        topics.alter_configs_replaces_all_settings,
        topics.alter_configs_refuses_what_cannot_be,
    ),
    *_cases(
        IncrementalAlterConfigsRequest,
        topics.incremental_alter_configs_changes_one_setting,
        topics.incremental_alter_configs_refuses_what_cannot_be,
    ),
    *_cases(
        DescribeLogDirsRequest,
        topics.describe_log_dirs_tells_the_size_of_logs,
        topics.describe_log_dirs_describes_all,
        topics.describe_log_dirs_of_an_unknown_topic_is_empty,
    ),
    *_cases(
        AlterReplicaLogDirsRequest,
        topics.alter_replica_log_dirs_refuses_roots_that_are_not_there,
        topics.alter_replica_log_dirs_is_content_where_a_log_is,
    ),
    *_cases(
        ElectLeadersRequest,
        topics.elect_leaders_tells_where_none_is_needed,
        topics.elect_leaders_elects_everywhere,
        topics.elect_leaders_of_an_unknown_topic_is_refused,
    ),
    *_cases(
        AlterPartitionReassignmentsRequest,
        topics.alter_partition_reassignments_to_where_it_is_ends_at_once,
        topics.alter_partition_reassignments_refuses_what_cannot_be,
        topics.alter_partition_reassignments_cancels_only_what_is_under_way,
    ),
    *_cases(
        ListPartitionReassignmentsRequest,
        topics.list_partition_reassignments_is_empty_where_nothing_moves,
    ),
    *_cases(
        DescribeClientQuotasRequest,
        quotas.describe_client_quotas_filters_by_type_and_name,
        quotas.describe_client_quotas_refuses_unknown_types,
    ),
    *_cases(
        AlterClientQuotasRequest,
        quotas.alter_client_quotas_sets_and_removes,
        quotas.alter_client_quotas_may_only_validate,
        quotas.alter_client_quotas_refuses_what_is_no_quota,
    ),
    *_cases(
        DescribeClusterRequest,
        topics.describe_cluster_lists_the_brokers,
        (topics.describe_cluster_has_no_controller_endpoints, 1),
    ),
    *_cases(
        ApiVersionsRequest,
        topics.api_versions_lists_what_is_served,
        (topics.api_versions_refuses_software_that_is_no_name, 3),
    ),
    *_cases(FindCoordinatorRequest, groups.find_coordinator_names_the_node),
    *_cases(
        JoinGroupRequest,
        groups.join_group_makes_a_leader,
        (groups.join_group_keeps_a_static_member, 5),
        groups.join_group_refuses_what_cannot_be,
    ),
    *_cases(
        SyncGroupRequest,
        groups.sync_group_hands_out_the_assignment,
        groups.sync_group_refuses_strangers,
        (groups.sync_group_refuses_another_protocol, 5),
    ),
    *_cases(
        HeartbeatRequest,
        groups.heartbeat_is_heard,
        groups.heartbeat_of_strangers_is_refused,
        (groups.heartbeat_of_another_instance_is_refused, 3),
    ),
    *_cases(LeaveGroupRequest, groups.leave_group_ends_a_membership, groups.leave_group_refuses_strangers),
    *_cases(
        DescribeGroupsRequest,
        groups.describe_groups_shows_members,
        groups.describe_groups_shows_the_unknown_as_dead,
    ),
    *_cases(
        ConsumerGroupHeartbeatRequest,
        consumer_groups.heartbeat_joins_and_assigns,
        consumer_groups.heartbeat_leaves,
        consumer_groups.heartbeat_fences_a_member_of_another_epoch,
        consumer_groups.heartbeat_refuses_strangers,
    ),
    *_cases(
        ConsumerGroupDescribeRequest,
        consumer_groups.describe_shows_members,
        consumer_groups.describe_does_not_find_the_unknown,
    ),
    *_cases(
        ListGroupsRequest,
        groups.list_groups_lists_groups,
        (groups.list_groups_lists_what_is_asked_for, 4),
    ),
    *_cases(
        OffsetCommitRequest,
        groups.offset_commit_keeps_positions,
        (groups.offset_commit_of_a_member_is_kept, 1),
        (groups.offset_commit_of_strangers_is_refused, 1),
        groups.offset_commit_into_the_unknown_is_refused,
        groups.offset_commit_of_too_much_metadata_is_refused,
    ),
    *_cases(
        OffsetFetchRequest,
        groups.offset_fetch_reads_positions,
        (groups.offset_fetch_reads_all_positions, 2),
        (groups.offset_fetch_of_an_unknown_group_finds_nothing, 1),
    ),
    *_cases(
        OffsetDeleteRequest,
        groups.offset_delete_forgets_positions,
        groups.offset_delete_spares_what_members_read,
        groups.offset_delete_of_an_unknown_group_is_refused,
    ),
    *_cases(
        DeleteGroupsRequest,
        groups.delete_groups_deletes_and_refuses,
        groups.groups_can_be_joined_again_after_deletion,
    ),
    *_cases(LeaderAndIsrRequest, (nodes.leader_and_isr_of_a_former_controller_is_refused, 5)),
    *_cases(StopReplicaRequest, (nodes.stop_replica_of_a_former_controller_is_refused, 3)),
    *_cases(UpdateMetadataRequest, (nodes.update_metadata_of_a_former_controller_is_refused, 5)),
    *_cases(ControlledShutdownRequest, nodes.controlled_shutdown_of_an_unknown_broker_is_refused),
)
