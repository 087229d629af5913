"""What a side has that the other side has not: records that were born there, or came there from elsewhere,
and that no route has copied. Found by headers of batches, from where the route stands to the end: what the
ledger knows to have come from the other side is passed over unread, of the rest the registry of origins
tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.client.aborted import AbortedBatches, aborted_transactions
from broker.client.cluster import Cluster
from broker.client.fetch import FetchTerms, PartitionPosition, build_fetch, read_fetch, version_limit
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import MAGIC_POSITION, BatchHeader, read_header
from broker.records.reader import iterate_entries
from broker.types import TopicPartition
from broker.wire.messages.fetch import FetchRequest, PartitionData
from mirrormaker.failover.partitions import PartitionPlace
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.two_way import mirrored_until

FETCH_BYTES = 4 << 20
READ_TIMEOUT_MS = 30_000

Paths = Mapping[int, frozenset[str]]
"""By producer id, the clusters where its batches have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Records of one partition that the other side lacks."""

    topic: str
    partition: int
    first: int
    """Offset of the first of them."""
    last: int
    records: int
    bytes: int
    """As stored."""
    first_ms: int
    """Timestamps of the first batch and the last."""
    last_ms: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def describe(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def line(self) -> str:
        """For people."""
        return f"{self.source}: {self.records:,} records, offsets {self.first} to {self.last}"


async def read_paths(cluster: Cluster) -> dict[int, frozenset[str]]:
    """What the registry of a cluster says. Raises BrokerError."""
    if ORIGINS_TOPIC not in (await cluster.refresh()).topics:
        return {}
    async with KeptTopic(cluster, ORIGINS_TOPIC, timeout_ms=READ_TIMEOUT_MS) as topic:
        await topic.read_to_end()
        return {
            key["producer"]: frozenset(value["path"])
            for key, value in topic.entries()
            if isinstance(key.get("producer"), int) and isinstance(value.get("path"), list)
        }


async def find_tail(
    cluster: Cluster, place: PartitionPlace, came: LaneLedger, paths: Paths, destination: str | None
) -> Tail | None:
    """Of one partition from its position on; None where there is nothing. `came`: the lane that leads there
    from the other side, whose cluster id is `destination`. Raises BrokerError.
    """
    position, tail = place.position, None
    while position < place.stable_end:
        position = max(position, mirrored_until([came], position) or 0)
        if position >= place.stable_end:
            break
        answer = await _fetch(cluster, place.source, position)
        aborted, records = AbortedBatches(aborted_transactions(answer)), memoryview(answer.records or b"")
        before = position
        for start, size in iterate_entries(records):
            entry = records[start : start + size]
            if entry[MAGIC_POSITION] < 2:
                offset = int.from_bytes(entry[:8], "big", signed=True)
                tail = _with(tail, place.source, max(offset, position), offset, size, 1, -1)
                position = offset + 1
                continue
            header = read_header(entry)
            if not (aborted.includes(header) or header.is_control or _has_been(header, paths, destination)):
                first = max(header.base_offset, position)
                count = min(header.record_count, header.next_offset - first)
                if count > 0:
                    tail = _with(
                        tail, place.source, first, header.last_offset, size, count, header.max_timestamp
                    )
            position = max(position, header.next_offset)
        if position == before:
            break  # it ends sooner than it was told
    return tail


def _has_been(header: BatchHeader, paths: Paths, destination: str | None) -> bool:
    return header.producer_id >= 0 and destination in paths.get(header.producer_id, frozenset())


def _with(
    tail: Tail | None, at: TopicPartition, first: int, last: int, size: int, records: int, time_ms: int
) -> Tail:
    if tail is None:
        return Tail(
            topic=at.topic,
            partition=at.partition,
            first=first,
            last=last,
            records=records,
            bytes=size,
            first_ms=time_ms,
            last_ms=time_ms,
        )
    return replace(tail, last=last, records=tail.records + records, bytes=tail.bytes + size, last_ms=time_ms)


async def _fetch(cluster: Cluster, source: TopicPartition, offset: int) -> PartitionData:
    """Raises BrokerError, also where the partition has no leader."""
    leader = cluster.leader(source)
    if leader is None:
        raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{source} has no leader")
    asked = [PartitionPosition(topic_partition=source, offset=offset, max_bytes=FETCH_BYTES)]
    terms = FetchTerms(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, read_committed=True)
    request = build_fetch(asked, terms, cluster.metadata)
    connection = await cluster.connection(leader)
    version = connection.version_of(FetchRequest, at_most=version_limit(asked, cluster.metadata))
    for _, data in read_fetch(await connection.request(request, version), request):
        if data.error_code:
            raise ProtocolError(ErrorCode.of(data.error_code), f"fetch of {source}")
        return data
    raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"fetch of {source}")
