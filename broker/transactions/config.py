"""Settings of the transaction coordinator, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Bounds and delays; each field names the setting of the node that fills it, where there is one."""

    timeout_max_ms: int = 900_000
    """`transaction.max.timeout.ms`: the longest timeout that a producer may ask for."""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`transactional.id.expiration.ms`: how long an id outlives its last transaction."""
    timeout_check_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
    expiry_check_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`."""
    batch_bytes_max: int = 1_000_000
    """Records of several ids share one batch up to about this size; at most `max.message.bytes` of
    `__transaction_state`.
    """
    load_batch_bytes_max: int = 64 * 1024 * 1024
    """Uncompressed bytes of one batch that is read back; larger ones are skipped as damaged."""
    appends_pending_max: int = 10_000
    """Appends waiting on one partition; past it producers are told COORDINATOR_NOT_AVAILABLE, and come again.
    """
