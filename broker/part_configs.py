"""The configuration of each part of a node, out of the node's settings under Kafka's names."""

from __future__ import annotations

from random import Random

from broker.client.connection import ConnectionSettings
from broker.clock import Clock
from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.events import ControllerSettings
from broker.config import LoadedConfig, NodeConfig
from broker.groups.config import GroupConfig
from broker.groups.consumer_groups.config import ConsumerGroupConfig, MigrationPolicy
from broker.groups.group_configs import GroupBounds, GroupConfigs
from broker.rates import RateWindows
from broker.replication.follower_progress import LagBounds
from broker.replication.following import FetchBounds
from broker.replication.log_cleaner import CleanerSettings
from broker.replication.replication_quotas import ReplicationQuota, ReplicationQuotas
from broker.replication.upkeep import UpkeepIntervals
from broker.server.config import INT_MAX, ConnectionLimits, ListenerLimits
from broker.server.controlled_shutdown import ShutdownSettings
from broker.server.fetch_sessions import SESSION_ID_MAX, FetchSessions
from broker.server.internal_topics import offsets_topic, transactions_topic
from broker.server.quotas import Quotas
from broker.server.services import ServingLimits
from broker.server.topics import TopicDefaults
from broker.server.transaction_partitions import VerificationSettings
from broker.storage.log_config import LogConfig
from broker.transactions.config import TransactionConfig

OFFSETS_REPLICATION_FACTOR = "offsets.topic.replication.factor"
TRANSACTIONS_REPLICATION_FACTOR = "transaction.state.log.replication.factor"
TRANSACTIONS_MIN_ISR = "transaction.state.log.min.isr"

_MINUTE_MS = 60_000
_FRAME_BYTES_MAX = 128 << 20
"""What a leader may answer beyond the bounds that it was given: one batch is sent however large it is."""
_FLUSH_LOOK_MS = 1_000
"""How often logs are looked at for flushing where the settings ask for nothing more often."""


def log_defaults(config: NodeConfig) -> LogConfig:
    """What a log gets whose topic says nothing."""
    return LogConfig(
        archive_enable=config.log_archive_enable,
        cleanup_policy=frozenset(config.log_cleanup_policy),
        compression_gzip_level=config.compression_gzip_level,
        compression_lz4_level=config.compression_lz4_level,
        compression_type=config.compression_type,
        delete_retention_ms=config.log_cleaner_delete_retention_ms,
        file_delete_delay_ms=config.log_segment_delete_delay_ms,
        compression_zstd_level=config.compression_zstd_level,
        flush_messages=config.log_flush_interval_messages,
        flush_ms=(
            config.log_flush_scheduler_interval_ms
            if config.log_flush_interval_ms is None
            else config.log_flush_interval_ms
        ),
        index_interval_bytes=config.log_index_interval_bytes,
        max_compaction_lag_ms=config.log_cleaner_max_compaction_lag_ms,
        max_message_bytes=config.message_max_bytes,
        message_downconversion_enable=config.log_message_downconversion_enable,
        message_format_version=config.log_message_format_version,
        message_timestamp_after_max_ms=config.log_message_timestamp_after_max_ms,
        message_timestamp_before_max_ms=config.log_message_timestamp_before_max_ms,
        message_timestamp_difference_max_ms=config.log_message_timestamp_difference_max_ms,
        message_timestamp_type=config.log_message_timestamp_type,
        min_cleanable_dirty_ratio=config.log_cleaner_min_cleanable_ratio,
        min_compaction_lag_ms=config.log_cleaner_min_compaction_lag_ms,
        min_insync_replicas=config.min_insync_replicas,
        retention_bytes=config.log_retention_bytes,
        retention_ms=config.retention_ms,
        segment_bytes=config.log_segment_bytes,
        segment_index_bytes_max=config.log_index_size_max_bytes,
        segment_jitter_ms=config.roll_jitter_ms,
        segment_ms=config.roll_ms,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
    )


def connection_limits(config: NodeConfig) -> ConnectionLimits:
    """Bounds of the network side."""
    return ConnectionLimits(
        request_size_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes,
        connections_max=config.max_connections,
        creation_rate_max=config.max_connection_creation_rate,
        listeners={name: _listener_limits(config, name) for name, _ in config.of_listeners},
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=config.connection_limits_per_ip,
        idle_ms_max=config.connections_max_idle_ms,
        send_buffer_size=config.socket_send_buffer_bytes,
        receive_buffer_size=config.socket_receive_buffer_bytes,
        backlog_size=config.socket_listen_backlog_size,
    )


def _listener_limits(config: NodeConfig, listener: str) -> ListenerLimits:
    return ListenerLimits(
        connections_max=config.of_listeners.get((listener, "max.connections"), INT_MAX),
        creation_rate_max=config.of_listeners.get((listener, "max.connection.creation.rate"), INT_MAX),
    )


def rate_windows(config: NodeConfig) -> RateWindows:
    """What rates of clients and connections are measured over."""
    return RateWindows(count=config.quota_window_num, size_ms=config.quota_window_size_seconds * 1000)


def between_nodes(config: NodeConfig) -> ConnectionSettings:
    """How this node speaks to others."""
    return ConnectionSettings(request_timeout_ms=config.request_timeout_ms)


def between_followers(config: NodeConfig) -> ConnectionSettings:
    """How this node speaks to the leaders that it follows."""
    answer_bytes_max = max(config.replica_fetch_response_max_bytes, config.replica_fetch_max_bytes)
    return ConnectionSettings(
        client_id=f"broker-{config.broker_id}-fetcher",
        request_timeout_ms=config.replica_socket_timeout_ms,
        connect_timeout_ms=config.replica_socket_timeout_ms,
        max_frame_bytes=max(2 * answer_bytes_max, _FRAME_BYTES_MAX),
        keeps_frames=True,
        receive_buffer_bytes=max(config.replica_socket_receive_buffer_bytes, 0),
    )


def fetch_bounds(config: NodeConfig) -> FetchBounds:
    """How much a follower asks for."""
    return FetchBounds(
        bytes_min=config.replica_fetch_min_bytes,
        wait_ms_max=config.replica_fetch_wait_max_ms,
        partition_bytes_max=config.replica_fetch_max_bytes,
        response_bytes_max=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )


def replication_quotas(config: NodeConfig, clock: Clock) -> ReplicationQuotas:
    """How fast replicas are copied that are told to be copied slowly."""
    windows = RateWindows(
        count=config.replication_quota_window_num,
        size_ms=config.replication_quota_window_size_seconds * 1000,
    )
    return ReplicationQuotas(
        leader=ReplicationQuota(config.leader_replication_throttled_rate, windows, clock.monotonic_ms),
        follower=ReplicationQuota(config.follower_replication_throttled_rate, windows, clock.monotonic_ms),
    )


def serving_limits(config: NodeConfig) -> ServingLimits:
    """Bounds of single requests."""
    return ServingLimits(
        fetch_size_max=config.fetch_max_bytes,
        request_timeout_ms=config.request_timeout_ms,
        batch_size_max=config.message_max_bytes,
        partitions_described_max=config.max_request_partition_size_limit,
    )


def client_quotas(config: NodeConfig, clock: Clock) -> Quotas:
    """The node's accounts of its clients, empty."""
    return Quotas(
        rate_windows(config),
        clock.monotonic_ms,
        mutation_windows=RateWindows(
            count=config.controller_quota_window_num,
            size_ms=config.controller_quota_window_size_seconds * 1000,
        ),
    )


def fetch_sessions(config: NodeConfig, rng: Random) -> FetchSessions:
    """The cache of fetch sessions, empty."""
    return FetchSessions(
        slots_max=config.max_incremental_fetch_session_cache_slots,
        eviction_ms=config.min_incremental_fetch_session_eviction_ms,
        draw_id=lambda: rng.randint(1, SESSION_ID_MAX),
    )


def topic_defaults(loaded: LoadedConfig) -> TopicDefaults:
    """What new topics get that do not say."""
    config = loaded.node
    return TopicDefaults(
        partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        auto_create=config.auto_create_topics_enable,
        deletable=config.delete_topic_enable,
        internal=(
            offsets_topic(
                partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                required=OFFSETS_REPLICATION_FACTOR in loaded.given,
                segment_bytes=config.offsets_topic_segment_bytes,
            ),
            transactions_topic(
                partitions=config.transaction_state_log_num_partitions,
                replication_factor=config.transaction_state_log_replication_factor,
                required=TRANSACTIONS_REPLICATION_FACTOR in loaded.given,
                min_insync_replicas=config.transaction_state_log_min_isr,
                min_insync_required=TRANSACTIONS_MIN_ISR in loaded.given,
                segment_bytes=config.transaction_state_log_segment_bytes,
            ),
        ),
        archive_available=config.log_archive_url is not None,
    )


def group_config(config: NodeConfig) -> GroupConfig:
    """Bounds and delays of groups."""
    return GroupConfig(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        offset_metadata_size_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        batch_bytes_max=min(1_000_000, config.message_max_bytes),
        consumer=ConsumerGroupConfig(
            is_enabled="consumer" in config.group_coordinator_rebalance_protocols,
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            size_max=config.group_consumer_max_size,
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            assignors=config.group_consumer_assignors,
            migration=MigrationPolicy(config.group_consumer_migration_policy),
            classic_session_timeout_min_ms=config.group_min_session_timeout_ms,
            classic_session_timeout_max_ms=config.group_max_session_timeout_ms,
            classic_size_max=config.group_max_size,
        ),
    )


def group_configs(config: NodeConfig, entity_configs: EntityConfigs) -> GroupConfigs:
    """The settings of single groups, and what these may be given."""
    bounds = GroupBounds(
        heartbeat_interval_min_ms=config.group_consumer_min_heartbeat_interval_ms,
        heartbeat_interval_max_ms=config.group_consumer_max_heartbeat_interval_ms,
        session_timeout_min_ms=config.group_consumer_min_session_timeout_ms,
        session_timeout_max_ms=config.group_consumer_max_session_timeout_ms,
    )
    return GroupConfigs(entity_configs, group_config(config).consumer, bounds)


def transaction_config(config: NodeConfig) -> TransactionConfig:
    """Bounds and delays of transactions."""
    return TransactionConfig(
        timeout_max_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        timeout_check_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiry_check_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        batch_bytes_max=min(1_000_000, config.message_max_bytes),
    )


def verification_settings(config: NodeConfig) -> VerificationSettings:
    """How leaders ask coordinators about transactions."""
    return VerificationSettings(
        enable=config.transaction_partition_verification_enable,
        backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_ms_max=config.add_partitions_to_txn_retry_backoff_max_ms,
    )


def controller_settings(config: NodeConfig) -> ControllerSettings:
    """How this node elects leaders when it is the controller."""
    return ControllerSettings(
        unclean_leader_election=config.unclean_leader_election_enable,
        auto_leader_rebalance=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
    )


def lag_bounds(config: NodeConfig) -> LagBounds:
    """How far behind a replica in sync may be."""
    return LagBounds(time_ms=config.replica_lag_time_max_ms, messages=config.replica_lag_max_messages)


def shutdown_settings(config: NodeConfig) -> ShutdownSettings:
    """How the node leaves."""
    return ShutdownSettings(
        enable=config.controlled_shutdown_enable,
        retries_max=config.controlled_shutdown_max_retries,
        retry_backoff_ms=config.controlled_shutdown_retry_backoff_ms,
    )


def upkeep_intervals(config: NodeConfig) -> UpkeepIntervals:
    """How often logs are cared for."""
    return UpkeepIntervals(
        flush_ms=min(config.log_flush_scheduler_interval_ms, _FLUSH_LOOK_MS),
        retention_ms=config.log_retention_check_interval_ms,
        checkpoint_ms=min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        ),
        high_watermark_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
    )


def cleaner_settings(config: NodeConfig) -> CleanerSettings:
    """How logs are compacted."""
    return CleanerSettings(
        enable=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        bytes_per_second_max=config.log_cleaner_io_max_bytes_per_second,
        map_bytes=config.log_cleaner_dedupe_buffer_size,
        map_load_factor=config.log_cleaner_io_buffer_load_factor,
        buffer_bytes=config.log_cleaner_io_buffer_size,
        backoff_ms=config.log_cleaner_backoff_ms,
    )
