"""Settings of a node: Kafka's names, types, ranges and defaults; `config_loading` reads them.

Every field of NodeConfig is one setting; its name with dots for underscores is Kafka's own
(`log_segment_bytes` is `log.segment.bytes`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from broker.group_settings import GroupSettings
from broker.listener_config import ListenerTexts, address_limit
from broker.settings import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Kind,
    SettingType,
    boolean,
    double,
    integer,
    long,
    names,
    optional_long,
    optional_string,
    setting,
    string,
)
from broker.storage.cleaning_schedule import CleaningSchedule
from broker.storage.log_config import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    FORMAT_VERSION,
    GZIP_LEVEL,
    LZ4_FAST_LEVEL,
    LZ4_LEVEL,
    TIMESTAMP_TYPES,
    ZSTD_LEVEL,
)
from broker.transaction_settings import TransactionSettings

T = TypeVar("T")

_HOUR_MS = 60 * 60 * 1000
_MINUTE_MS = 60 * 1000


def cron() -> Kind[str]:
    """A cron expression of five fields, or nothing."""
    return Kind(type=SettingType.STRING, parse=lambda text: CleaningSchedule(text).expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(TransactionSettings, GroupSettings):
    """The settings of one node."""

    # Identity and addresses
    broker_id: int = setting(integer(-1), -1, "Id of this node in its cluster; must be given.")
    broker_rack: str | None = setting(
        optional_string(), None, "Rack of this node, for the placement of replicas."
    )
    listeners: tuple[str, ...] = setting(
        names(), ("PLAINTEXT://127.0.0.1:9092",), "Addresses to listen on, NAME://HOST:PORT."
    )
    advertised_listeners: tuple[str, ...] = setting(
        names(), (), "Addresses that clients are told; those of `listeners` when empty."
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        names(), ("PLAINTEXT:PLAINTEXT",), "Security protocol of each listener name, NAME:PROTOCOL."
    )
    inter_broker_listener_name: str | None = setting(
        optional_string(), None, "Listener that nodes use among themselves; the first one when empty."
    )

    # ZooKeeper
    zookeeper_connect: str = setting(
        string(), "127.0.0.1:2181", "ZooKeeper servers and chroot, HOST:PORT[,HOST:PORT][/CHROOT]."
    )
    zookeeper_session_timeout_ms: int = setting(
        integer(1), 18_000, "ZooKeeper ends a silent session after this time."
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        optional_long(1), None, "How long to wait for ZooKeeper at start; the session timeout when empty."
    )

    # Connections
    max_connections: int = setting(
        integer(0),
        INT_MAX,
        "Connections of this node at any time; more are closed. Nodes with a listener of their own get in. "
        "Of one listener: listener.name.NAME.max.connections.",
    )
    max_connection_creation_rate: int = setting(
        integer(1),
        INT_MAX,
        "Connections accepted in a second; more wait for their turn. Of one listener: "
        "listener.name.NAME.max.connection.creation.rate.",
    )
    max_connections_per_ip: int = setting(integer(0), INT_MAX, "Connections from one address at any time.")
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        names(), (), "Other limits for some addresses, ADDRESS:COUNT."
    )
    connections_max_idle_ms: int = setting(long(), 600_000, "Silent connections are closed after this time.")
    socket_request_max_bytes: int = setting(integer(1), 104_857_600, "Size of one request.")
    queued_max_request_bytes: int = setting(
        long(), -1, "Memory for requests over 256 KiB under way, over all connections; below 1: any amount."
    )
    socket_send_buffer_bytes: int = setting(
        integer(-1), -1, "SO_SNDBUF; -1: the kernel adapts it to the link."
    )
    socket_receive_buffer_bytes: int = setting(
        integer(-1), -1, "SO_RCVBUF; -1: the kernel adapts it to the link."
    )
    socket_listen_backlog_size: int = setting(
        integer(1), 1024, "Connections that may wait to be accepted; a storm over it costs clients seconds."
    )
    quota_window_num: int = setting(integer(1), 11, "Windows that rates under quotas are measured over.")
    quota_window_size_seconds: int = setting(integer(1), 1, "Length of such a window.")
    controller_quota_window_num: int = setting(
        integer(1), 11, "Windows' worth of controller_mutation_rate that may be spent at once."
    )
    controller_quota_window_size_seconds: int = setting(integer(1), 1, "Length of such a window.")
    num_network_threads: int = setting(integer(1), 1, "No effect: a node has one event loop.")
    num_io_threads: int = setting(integer(1), 8, "Threads for the disk: flushes, recovery, cold reads.")
    num_recovery_threads_per_data_dir: int = setting(
        integer(1), 8, "Logs of one directory opened, recovered or closed at once."
    )
    request_timeout_ms: int = setting(integer(1), 30_000, "How long requests between nodes may take.")
    fetch_max_bytes: int = setting(integer(1024), 57_671_680, "Bytes of records in one fetch response.")

    max_request_partition_size_limit: int = setting(
        integer(1), 2000, "Partitions in one answer to DescribeTopicPartitions; its client asks for the rest."
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        integer(0), 1000, "Incremental fetch sessions that are kept; without one a client fetches in full."
    )
    min_incremental_fetch_session_eviction_ms: int = setting(
        long(0), 120_000, "How long a fetch session is kept before one worth more may take its place."
    )

    # Topics
    num_partitions: int = setting(integer(1), 1, "Partitions of a topic that does not say how many.")
    default_replication_factor: int = setting(
        integer(1), 1, "Replicas of a topic that does not say how many."
    )
    min_insync_replicas: int = setting(integer(1), 1, "In-sync replicas that acks=all needs.")
    auto_create_topics_enable: bool = setting(boolean(), True, "Whether first use of a topic creates it.")
    delete_topic_enable: bool = setting(boolean(), True, "Whether topics may be deleted.")
    unclean_leader_election_enable: bool = setting(
        boolean(),
        False,
        "Whether a replica that is not in sync may lead when no other is left: loses records.",
    )
    compression_type: str = setting(
        string(COMPRESSION_TYPES), "producer", "Codec of stored batches; producer: as they come."
    )
    compression_gzip_level: int = setting(
        GZIP_LEVEL, -1, "Level where compression.type is gzip; -1: the codec's default."
    )
    compression_lz4_level: int = setting(
        LZ4_LEVEL, LZ4_FAST_LEVEL, "Level where compression.type is lz4; 9: the fast compressor."
    )
    compression_zstd_level: int = setting(ZSTD_LEVEL, 3, "Level where compression.type is zstd.")
    message_max_bytes: int = setting(integer(0), 1_048_588, "Size of one record batch.")

    # Logs
    log_dir: str = setting(string(), "/tmp/kafka-logs", "Data root, where log.dirs is not given.")
    log_dirs: tuple[str, ...] = setting(names(), (), "Data roots.")
    log_segment_bytes: int = setting(integer(14), 1_073_741_824, "Size at which a segment is rolled.")
    log_roll_ms: int | None = setting(optional_long(1), None, "Age at which a segment is rolled.")
    log_roll_hours: int = setting(integer(1), 168, "As log.roll.ms, in hours.")
    log_roll_jitter_ms: int | None = setting(optional_long(0), None, "Random part taken off the roll age.")
    log_roll_jitter_hours: int = setting(integer(0), 0, "As log.roll.jitter.ms, in hours.")
    log_index_interval_bytes: int = setting(integer(0), 4096, "Bytes of log between two index entries.")
    log_index_size_max_bytes: int = setting(integer(4), 10_485_760, "Size of one index file.")
    log_flush_interval_messages: int = setting(
        long(1), LONG_MAX, "Records after which a log is flushed to the disk."
    )
    log_flush_interval_ms: int | None = setting(
        optional_long(0), None, "Age of records at which a log is flushed."
    )
    log_flush_scheduler_interval_ms: int = setting(
        long(1), LONG_MAX, "How often logs are looked at for flushing; once a second at least."
    )
    num_replica_alter_log_dirs_threads: int | None = setting(
        optional_long(1),
        None,
        "Replicas copied from one log directory to another at once; as many as directories when empty.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        long(0), LONG_MAX, "Bytes per second that moves between log directories copy, all together."
    )
    log_dir_min_free_bytes: int | None = setting(
        optional_long(0),
        None,
        "Space kept free in each log directory: clients are refused, by a retriable error, below. When empty "
        "100 MiB, or 5 % of a file system smaller than 2 GB.",
    )
    log_segment_delete_delay_ms: int = setting(
        long(0), 60_000, "How long the files of deleted segments and topics stay before their space is freed."
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        integer(1), 60_000, "How often recovery points and log start offsets are saved."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        integer(1), 60_000, "The same; the shorter of the two holds."
    )
    log_retention_ms: int | None = setting(
        optional_long(-1), None, "Age at which segments are deleted; -1: never."
    )
    log_retention_minutes: int | None = setting(optional_long(-1), None, "As log.retention.ms, in minutes.")
    log_retention_hours: int = setting(integer(-1), 168, "As log.retention.ms, in hours.")
    log_retention_bytes: int = setting(
        long(-1), -1, "Size of a partition above which segments are deleted; -1: any."
    )
    log_retention_check_interval_ms: int = setting(long(1), 300_000, "How often retention is applied.")
    log_cleanup_schedule: str = setting(
        cron(),
        "",
        "Cron expression (minute hour day month weekday, local time) of the minutes in which segments may be "
        "deleted and archived; empty: always. No setting of Kafka's.",
    )
    log_archive_enable: bool = setting(
        boolean(),
        False,
        "Whether segments are archived before retention deletes them. No setting of Kafka's, as none of "
        "log.archive.*.",
    )
    log_archive_url: str | None = setting(
        optional_string(), None, "Directory or object store that takes archived segments, by its fsspec URL."
    )
    log_archive_class: str = setting(
        string(), "broker.storage.url_archive:UrlArchive", "What stores segments at the URL, MODULE:CLASS."
    )
    log_archive_threads: int = setting(integer(1), 2, "Segments archived at once.")
    log_cleanup_policy: tuple[str, ...] = setting(
        names(CLEANUP_POLICIES),
        ("delete",),
        "delete: old segments go. compact: of each key the newest record stays.",
    )
    log_cleaner_enable: bool = setting(boolean(), True, "Whether logs are compacted at all.")
    log_cleaner_threads: int = setting(integer(0), 1, "Threads that compact logs, one log each at a time.")
    log_cleaner_io_max_bytes_per_second: float = setting(
        double(0.001), DOUBLE_MAX, "What they may read and write a second, all together."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        long(1 << 20), 134_217_728, "Memory for their maps of keys, all together; a key takes 200 bytes."
    )
    log_cleaner_io_buffer_size: int = setting(
        integer(1024), 524_288, "Read and written at a time, all together."
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        double(0.01, 1), 0.9, "How far a map of keys is filled before a pass ends."
    )
    log_cleaner_backoff_ms: int = setting(
        long(0), 15_000, "How long a thread rests when there is nothing to compact."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        double(0, 1), 0.5, "Part of a log that must be dirty for a pass to be worth it."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        long(0), 0, "Records younger than this are not compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        long(1), LONG_MAX, "Records older than this are compacted however small the dirty part is."
    )
    log_cleaner_delete_retention_ms: int = setting(
        long(0), 86_400_000, "How long tombstones and markers of transactions stay once they were compacted."
    )
    log_message_timestamp_type: str = setting(
        string(TIMESTAMP_TYPES),
        "CreateTime",
        "Whether records carry the producer's time or the time of append.",
    )
    log_message_format_version: str = setting(
        FORMAT_VERSION,
        "3.0-IV1",
        "From 0.11 on, as logs hold the newest format alone; older clients get records converted.",
    )
    log_message_timestamp_before_max_ms: int = setting(
        long(0), LONG_MAX, "How old a new record may be; opens every batch."
    )
    log_message_timestamp_after_max_ms: int = setting(
        long(0), LONG_MAX, "How far ahead of this node's clock a record may be; opens every batch."
    )
    log_message_timestamp_difference_max_ms: int = setting(
        long(0), LONG_MAX, "Both bounds, where they are not given."
    )
    log_message_downconversion_enable: bool = setting(
        boolean(), True, "Whether old clients get converted records."
    )

    # Replication
    replica_lag_time_max_ms: int = setting(
        long(1), 30_000, "A follower that has not caught up for so long leaves the ISR."
    )
    replica_lag_max_messages: int | None = setting(
        optional_long(1), None, "A follower that is so many records behind leaves the ISR; none: no bound."
    )
    controlled_shutdown_enable: bool = setting(
        boolean(), True, "Whether a node that stops has its leaderships moved first."
    )
    controlled_shutdown_max_retries: int = setting(
        integer(0), 3, "How often it asks again while others may still take some."
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        long(0), 5000, "How long it waits at most before it asks again."
    )
    num_replica_fetchers: int = setting(
        integer(1), 1, "Tasks that follow one leader, each over a connection."
    )
    replica_fetch_min_bytes: int = setting(
        integer(0), 1, "Bytes that a leader waits for before it answers a follower."
    )
    replica_fetch_wait_max_ms: int = setting(integer(0), 500, "How long it waits for them at most.")
    replica_fetch_max_bytes: int = setting(
        integer(0), 1_048_576, "Bytes of one partition in a follower's fetch; a larger batch comes alone."
    )
    replica_fetch_response_max_bytes: int = setting(
        integer(0), 10_485_760, "Bytes of all partitions in a follower's fetch."
    )
    replica_fetch_backoff_ms: int = setting(
        integer(0), 1000, "How long a follower rests at most before it tries what failed again."
    )
    replica_socket_timeout_ms: int = setting(
        integer(1), 30_000, "How long a follower waits for an answer; longer than replica.fetch.wait.max.ms."
    )
    replica_socket_receive_buffer_bytes: int = setting(
        integer(-1), -1, "SO_RCVBUF of a follower's connections; -1: the kernel adapts it to the link."
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        long(1), 5000, "How often high watermarks are saved."
    )
    leader_replication_throttled_rate: int = setting(
        long(0),
        LONG_MAX,
        "Bytes a second that this node sends of the replicas that leader.replication.throttled.replicas of "
        "topics names, to followers that are not in sync.",
    )
    follower_replication_throttled_rate: int = setting(
        long(0),
        LONG_MAX,
        "Bytes a second that it fetches of those that follower.replication.throttled.replicas names, until "
        "they have caught up.",
    )
    replication_quota_window_num: int = setting(integer(1), 11, "Windows that these rates are measured over.")
    replication_quota_window_size_seconds: int = setting(integer(1), 1, "Length of such a window.")
    replica_selector_class: str = setting(
        string(),
        "leader",
        "From where consumers that say so should read: leader, rack (a replica in their rack), random, or a "
        "class of one's own, MODULE:CLASS.",
    )
    auto_leader_rebalance_enable: bool = setting(
        boolean(), True, "Whether leadership returns to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = setting(long(1), 300, "How often that is checked.")
    leader_imbalance_per_broker_percentage: int = setting(integer(0), 10, "Imbalance that is tolerated.")

    of_listeners: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    """What single listeners have of their own, by listener and setting: `listener.name.NAME.SETTING`."""

    @property
    def data_roots(self) -> list[Path]:
        """Directories that hold the logs."""
        return [Path(root) for root in (self.log_dirs or (self.log_dir,))]

    @property
    def retention_ms(self) -> int:
        """Age at which segments are deleted, in the finest unit that was given; -1: never."""
        return _finest(self.log_retention_ms, self.log_retention_minutes, self.log_retention_hours)

    @property
    def roll_ms(self) -> int:
        """Age at which segments are rolled."""
        return self.log_roll_hours * _HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        """Largest random part that is taken off `roll_ms`."""
        jitter_ms = self.log_roll_jitter_ms
        return self.log_roll_jitter_hours * _HOUR_MS if jitter_ms is None else jitter_ms

    @property
    def listener_texts(self) -> ListenerTexts:
        """What the settings say about listeners."""
        return ListenerTexts(
            listeners=self.listeners,
            advertised=self.advertised_listeners,
            protocols=self.listener_security_protocol_map,
            inter_broker=self.inter_broker_listener_name,
        )

    @property
    def connection_limits_per_ip(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address."""
        return dict(map(address_limit, self.max_connections_per_ip_overrides))


class SettingDeclaration(NamedTuple):
    """What is known of one setting apart from its value."""

    name: str
    field_name: str
    kind: Kind[Any]
    default: Any
    doc: str


def _declarations() -> Iterator[SettingDeclaration]:
    inherited = {declared.name for declared in dataclasses.fields(TransactionSettings)}
    for declared in sorted(dataclasses.fields(NodeConfig), key=lambda declared: declared.name in inherited):
        metadata = declared.metadata
        if not metadata:
            continue
        yield SettingDeclaration(
            declared.name.replace("_", "."),
            declared.name,
            metadata["kind"],
            declared.default,
            metadata["doc"],
        )


SETTINGS: Mapping[str, SettingDeclaration] = {declared.name: declared for declared in _declarations()}
"""Every setting by Kafka's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A node's settings, and which of them the file or the command line gave."""

    node: NodeConfig
    given: frozenset[str]


def _finest(milliseconds: int | None, minutes: int | None, hours: int) -> int:
    if milliseconds is not None:
        return milliseconds
    if minutes is not None:
        return minutes * _MINUTE_MS if minutes >= 0 else -1
    return hours * _HOUR_MS if hours >= 0 else -1
