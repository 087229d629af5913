"""Settings of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker.client.setting_bounds import find_too_small
from broker.errors import ConfigurationError
from broker.records.record_filter import RecordFilter


class OffsetReset(Enum):
    """Where to begin when there is no position, or one that the log no longer has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    """At the first record that is younger than `offset_reset_duration_ms` (KIP-1106)."""
    NONE = "none"
    """Nowhere: a PartitionError is raised, and `seek` decides."""


class Isolation(Enum):
    """Whether records of transactions that are open or aborted are seen."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


_LEAST = {
    "fetch_max_bytes": 0,
    "partition_max_bytes": 0,
    "fetch_min_bytes": 0,
    "fetch_max_wait_ms": 0,
    "buffer_bytes": 0,
    "fetches_per_node": 1,
    "stream_answers_max": 0,
    "offset_reset_duration_ms": 0,
    "auto_commit_interval_ms": 0,
    "max_poll_interval_ms": 0,
    "records_max": 1,
    "topic_gone_timeout_ms": 0,
    "decoded_bytes_max": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer behaves; sizes in bytes, times in milliseconds."""

    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    """Per partition and fetch; a batch that is larger still comes whole.

    Twice as much is fetched ahead of the reader.
    """
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    buffer_bytes: int = 64 * 1024 * 1024
    """Fetched and not yet taken, over all partitions; what fetches under way may bring counts in."""
    fetches_per_node: int = 2
    """Each on a connection of its own; `num.consumer.fetchers` of connectors."""
    stream_answers_max: int = 0
    """`queued.max.message.chunks`: how many answers, of one partition each, may wait for a connector's stream
    when more are asked for; 0 for any number within its part of the buffer.
    """
    rack: str = ""
    """Where the consumer is: leaders that know racks send it to a replica there."""
    offset_reset: OffsetReset = OffsetReset.LATEST
    offset_reset_duration_ms: int = 0
    """With OffsetReset.BY_DURATION: how far back from now to begin."""
    record_filter: RecordFilter | None = None
    """Which records are handed out: the others are passed over, and committed with what is around them."""
    filter_at_nodes: bool = True
    """Nodes that can leave out what the filter does not match, so that it does not cross the network."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    auto_commit_interval_ms: int = 5_000
    """In a group: how often positions are committed, 0 for never."""
    max_poll_interval_ms: int = 300_000
    """In a group: a reader that stays away for longer loses its partitions until it comes back (KIP-62), 0
    for never.
    """
    records_max: int = 500
    """What one `take` hands out at most, unless it says otherwise."""
    topic_gone_timeout_ms: int = 30_000
    """How long a leader may say that it does not know a topic before that is an error."""
    decoded_bytes_max: int = 256 * 1024 * 1024
    """Bound on what one batch may decompress to."""

    def __post_init__(self) -> None:
        if problems := find_too_small(self, _LEAST):
            raise ConfigurationError(problems)

    @property
    def committed_only(self) -> bool:
        return self.isolation is Isolation.READ_COMMITTED
