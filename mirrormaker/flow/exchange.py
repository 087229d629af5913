"""What goes into the copy machine and what comes out of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.client.aborted import AbortedTransaction
from broker.client.fetch import PartitionPosition
from broker.errors import ErrorCode
from broker.types import BrokerId, TopicPartition
from mirrormaker.flow.chunk import Chunk, Frame
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.former_lanes import FormerLanes
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.topology.model import PartitionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """How much of a partition is put together; all 0: nothing is."""

    batch_bytes: int = 0
    """Batches smaller than this become one, up to it; 0: they stay as they are."""
    answer_bytes: int = 0
    """An answer of less is worth waiting for while records keep coming."""
    linger_ms: int = 0
    """So long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """Bounds and waits of a machine; see `Resources` of the topology for the meaning of those in bytes."""

    buffer_bytes: int = 48 << 20
    partition_buffer_bytes: int = 8 << 20
    lone_buffer_bytes: int = 8 << 20
    """The same for a partition that is the only one."""
    fetch_bytes: int = 8 << 20
    fetch_partition_bytes: int = 1 << 20
    fetch_partition_bytes_max: int = 64 << 20
    """A partition whose answers hold not one whole batch asks for twice as much, up to this."""
    produce_bytes: int = 1 << 20
    fetch_partition_bytes_full: int = 0
    """A partition whose answers are full asks for twice as much, up to this; 0: it never does."""
    requests_in_flight: int = 5
    in_flight_bytes: int = 1 << 40
    """Under way to one broker, but for the request that passes it."""
    chunk_batches_max: int = 1
    """Batches of one partition in one request; 1 is what stock brokers take."""
    built_batch_bytes: int = 1 << 20
    """Bound on a batch that is built anew of smaller ones, or of records one by one."""
    deep: bool = False
    gather_bytes: int = 0
    """Batches smaller than this are put together up to it; 0: they are not."""
    linger_ms: int = 0
    """How long the source may wait with an answer for batches that are to be put together."""
    bound: Gathering = Gathering()
    """For partitions that their window holds back (see `window_watch`)."""
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 5_000
    pause_ms: int = 30_000
    """A paused partition is tried again after this."""
    damage_retries: int = 4
    """Bytes that the destination finds damaged are fetched again so often before the partition is paused."""
    producer_quiet_ms: int = 600_000
    """After so long without an answer a broker may have forgotten the producer: it is sent one chunk
    alone.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A partition to copy: where to, in which bucket, and the source offset to start at."""

    source: TopicPartition
    destinations: tuple[TopicPartition, ...]
    """A lane to each; more than one only with a `Transit` that spreads records over lanes."""
    bucket: int
    position: int
    is_merged: bool = False
    """Other source partitions may write to the same destinations: then its producer ids are its own."""
    lane_positions: tuple[int, ...] = ()
    """Where each lane goes on, when they are not all at `position`, the least of them."""
    former: tuple[FormerLanes, ...] = ()
    """See `Partition`."""
    spread: PartitionPolicy = PartitionPolicy.SAME
    """How records are shared out over the destinations."""
    leader_epoch: int = -1
    """Of the source's record before `position`, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition's part of a fetch answer."""

    source: TopicPartition
    offset: int
    """The one asked for."""
    records: bytearray | memoryview
    source_end: int
    """First offset that readers of committed records do not see yet."""
    aborted: Sequence[AbortedTransaction] = ()
    filtered_to: int = -1
    """The source has looked at everything before this offset, and left out what is not wanted; -1: nothing
    was left out.
    """
    filtered_epoch: int = -1
    """Leader epoch of the batch before that, where the source tells."""
    left_out_bytes: int = 0
    """What the source left out, as it is stored there."""

    @property
    def bytes_passed(self) -> int:
        """How far the answer reaches in the source's log."""
        return len(self.records) + self.left_out_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What of an answer is for another turn of the event loop (see `FlowMachine.take_on`)."""

    answers: tuple[FetchedPartition, ...]
    frame: Frame


class ProduceAnswer(NamedTuple):
    """What the destination said about one partition of a request."""

    code: ErrorCode
    base_offset: int | None = None
    """Of the first record; None where it does not say, as for records that it had already, or had a part of
    that others have written behind.
    """
    append_time_ms: int | None = None
    """The time that it gave the records; None: they keep theirs."""
    said: str | None = None
    """Why it refuses them, in its own words: of the first record that it names, or of all; None: nothing."""


NOT_ANSWERED = ProduceAnswer(ErrorCode.NETWORK_EXCEPTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPlan:
    """What to ask of one source broker now; empty when nothing is wanted or there is no room."""

    positions: list[PartitionPosition]
    answer_bytes: int
    pressed: bool
    """Partitions were left out for lack of room: do not let the request wait long for the others."""
    throttled: bool = False
    """Partitions were left out since bandwidth is limited, or for what waits to be sent of them: look again
    before long.
    """
    is_contended: bool = False
    """Not all that is asked for will come: the answer is to be filled in this order."""
    gather_bytes: int = 0
    """An answer of less is worth waiting for more, `linger_ms` long; 0 where nothing came the last time."""
    linger_ms: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class ProduceCommand:
    """One produce request to send. Its bytes must leave unchanged; it ends with `answered` or `failed`."""

    broker: BrokerId
    entries: list[tuple[Lane, Chunk]]
    bytes: int
    transactional_id: str | None = None
    """Of the transaction that all of it is part of."""

    def parts(self) -> list[tuple[TopicPartition, bytearray | memoryview]]:
        """Destination partition and bytes of each entry."""
        return [(lane.destination, chunk.records) for lane, chunk in self.entries]


@dataclass(slots=True, kw_only=True)
class Ready:
    """What the driver is to do, in this order: look leaders up again, get producer ids, send the requests."""

    refresh_leaders: bool
    producers: list[ProducerKey]
    """Identities that are needed: hand each to `set_producer`."""
    requests: list[ProduceCommand]
    facts: list[Fact]
    wake_at_ms: int | None
    """When to ask again even if nothing happens."""
