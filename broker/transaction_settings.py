"""Settings of a node about producers and transactions; `config` has the others."""

from __future__ import annotations

from dataclasses import dataclass

from broker.settings import boolean, integer, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Fields are settings by Kafka's names, as in NodeConfig."""

    producer_id_expiration_ms: int = setting(
        integer(1), 86_400_000, "How long an idle producer is remembered."
    )
    transactional_id_expiration_ms: int = setting(
        integer(1), 604_800_000, "How long a transactional id is remembered after its last transaction."
    )
    transaction_max_timeout_ms: int = setting(
        integer(1), 900_000, "Longest transaction timeout that producers may ask for."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        integer(1), 10_000, "How often transactions are aborted that outlived their timeout."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        integer(1), 3_600_000, "How often transactional ids are removed that nobody uses."
    )
    transaction_partition_verification_enable: bool = setting(
        boolean(),
        True,
        "Whether the first write of a transaction to a partition is checked with the coordinator.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        integer(0),
        20,
        "How long a leader waits before it asks the coordinator again whose last transaction is being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        integer(0), 100, "How long at most it asks again before the producer has to."
    )
    transaction_state_log_num_partitions: int = setting(integer(1), 50, "Partitions of __transaction_state.")
    transaction_state_log_replication_factor: int = setting(
        integer(1, 32767), 3, "Replicas of __transaction_state; as many as brokers if fewer, unless given."
    )
    transaction_state_log_min_isr: int = setting(
        integer(1), 2, "In-sync replicas that __transaction_state needs; all if fewer, unless given."
    )
    transaction_state_log_segment_bytes: int = setting(
        integer(1), 104_857_600, "Segment size of __transaction_state."
    )
    transaction_state_log_load_buffer_size: int = setting(
        integer(1), 5_242_880, "Read of __transaction_state at a time when a node begins to lead a partition."
    )
