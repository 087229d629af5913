"""The first batch that waits at a source, by its header: how old it is, and how large its records are. Of the
formats before batches, the first message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, read_fetch, version_limit
from broker.errors import CorruptRecordsError
from broker.records.batch import MAGIC_POSITION, peek_size, read_header
from broker.records.message_set import read_message
from broker.types import Buffer, TopicPartition
from broker.wire.messages.fetch import FetchRequest

UNPACKED_BYTES_MAX = 64 << 20
"""Of messages that are compressed together: so much is decoded where they are copied, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch:
    """The first batch that waits in a partition."""

    timestamp_ms: int
    """Since the epoch: of its first record, or of its append where the source's nodes date it. Of a batch of
    which compaction left some, whose header does not tell, that of the youngest. -1: it has none.
    """
    bytes_per_offset: float


async def sample_first(
    cluster: Cluster, positions: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, FirstBatch]:
    """The batches at these positions; those whose leader does not tell are left out. Raises BrokerError."""
    samples = await asyncio.gather(
        *(
            _sample_one(cluster, partition, offset, read_committed=read_committed)
            for partition, offset in positions.items()
        )
    )
    return {
        partition: sample for partition, sample in zip(positions, samples, strict=True) if sample is not None
    }


async def _sample_one(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    *,
    read_committed: bool,
    replica: int | None = None,
) -> FirstBatch | None:
    """One partition a request: only the first of a request is sure to be answered with a whole batch. Asked
    of its leader, or of the replica that the leader names.
    """
    node_id = cluster.leader(partition) if replica is None else replica
    if node_id is None:
        return None
    asked = [PartitionPosition(topic_partition=partition, offset=offset, max_bytes=1)]
    terms = FetchTerms(max_wait_ms=0, min_bytes=0, max_bytes=1, read_committed=read_committed)
    request = build_fetch(asked, terms, cluster.metadata)
    connection = await cluster.connection(node_id)
    version = connection.version_of(FetchRequest, at_most=version_limit(asked, cluster.metadata))
    for _, data in read_fetch(await connection.request(request, version), request):
        if replica is None and data.preferred_read_replica >= 0:
            nearer = data.preferred_read_replica
            return await _sample_one(
                cluster, partition, offset, read_committed=read_committed, replica=nearer
            )
        if not data.error_code:
            return read_first(data.records or b"")
    return None


def read_first(records: Buffer) -> FirstBatch | None:
    """The batch that an answer begins with; None where there is none that can be read."""
    if len(records) <= MAGIC_POSITION:
        return None
    try:
        return _first_message(records) if records[MAGIC_POSITION] < 2 else _first_batch(records)
    except CorruptRecordsError:
        return None


def _first_batch(records: Buffer) -> FirstBatch:
    """Raises CorruptRecordsError."""
    header = read_header(records)
    is_base_other = header.is_log_append_time or header.has_delete_horizon
    timestamp_ms = header.max_timestamp if is_base_other else header.base_timestamp
    return FirstBatch(
        timestamp_ms=timestamp_ms, bytes_per_offset=header.size / (header.last_offset_delta + 1)
    )


def _first_message(records: Buffer) -> FirstBatch:
    """Raises CorruptRecordsError, also where it is not whole."""
    size = peek_size(records) or 0
    held = read_message(memoryview(records)[:size], size_max=UNPACKED_BYTES_MAX, check_crc=False)
    offsets = held[-1].offset + 1 - held[0].offset
    return FirstBatch(timestamp_ms=held[0].timestamp, bytes_per_offset=size / offsets)
