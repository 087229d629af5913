"""What a side has that the other side has not: records that were born there, or came there from elsewhere,
and that no route has copied. Found by headers of batches, from where the route stands to the end: what the
ledger knows to have come from the other side is passed over unread, of the rest the registry of origins
tells, and the ledger's notes of who wrote copies. Where a topic was made anew, or has lost its end, the
ledger is about records that are gone: only what it tells of later ones counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from broker.client.cluster import Cluster
from broker.records.batch import BatchHeader
from broker.types import TopicPartition
from mirrormaker.audit.entries import Entry
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.ranges import Range
from mirrormaker.failover.partitions import (
    PartitionPlace,
    cluster_before,
    kept_of,
    lane_of,
    ledger_at,
    read_places,
)
from mirrormaker.failover.sides import Sides
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC, path_in
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.two_way import mirrored_until
from mirrormaker.reconcile.switches import Side

READ_TIMEOUT_MS = 30_000
PASSED_OVER_MIN = 10_000
"""Offsets that must have come from the other side for them to be passed over unread, not read along."""

Paths = Mapping[int, frozenset[str]]
"""By producer id, the clusters where its batches have been."""


class TailChoice(Enum):
    """What to do about records that only one side has."""

    COPY = "copy"
    REPORT = "report"


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
    """What the registry of a cluster says; of what names no path nothing is known. Raises BrokerError."""
    if ORIGINS_TOPIC not in (await cluster.refresh()).topics:
        return {}
    paths: dict[int, frozenset[str]] = {}
    async with KeptTopic(cluster, ORIGINS_TOPIC, timeout_ms=READ_TIMEOUT_MS) as topic:
        await topic.read_to_end()
        for key, value in topic.entries():
            producer = key.get("producer")
            with suppress(ValueError):
                if isinstance(producer, int):
                    paths[producer] = frozenset(path_in(value))
    return paths


async def find_tails(
    sides: Sides, side: Side, after: Mapping[TopicPartition, int] | None = None
) -> tuple[list[Tail], dict[TopicPartition, int]]:
    """What `side` has that the other one lacks, and no route that runs brings there; and how far was looked.
    `after`: offsets before which that has been done; one behind the end is of a log that is gone. While the
    other one is away, it is the one from which copies came last. Raises BrokerError.
    """
    cluster, other = sides.cluster(side), sides.clusters.get(side.other)
    came, went = await ledger_at(cluster), None if other is None else await ledger_at(other)
    places = await read_places(sides, side)
    paths = await read_paths(cluster)
    tails: list[Tail] = []
    for place in places:
        lane = kept_of(lane_of(came, other, place.to, place.source), place.end)
        other_id = cluster_before(came, place.to, place.source) if other is None else other.cluster_id
        looked_to = (after or {}).get(place.source, 0)
        begin = max(begin_of(lane, place), looked_to if looked_to <= place.stable_end else 0)
        if went is not None:
            begin = max(begin, lane_of(went, cluster, place.source, place.to).next or 0)
        begun = replace(place, committed=begin)
        copied = _Copied(paths=paths, destination=other_id, producers=came.producers(other_id))
        tail = await _find_tail(cluster, begun, lane, copied)
        tails += [] if tail is None else [tail]
    return tails, {place.source: place.stable_end for place in places}


def begin_of(lane: LaneLedger, place: PartitionPlace) -> int:
    """Where a route back goes on: from its position, or where the log begins if it has none or that is of a
    cluster that is gone, behind what is known to have come by the way forth.
    """
    begin = mirrored_until(lane, place.start if place.is_elsewhere else place.position)
    return min(max(begin, place.start), place.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    """By what a copy is known."""

    paths: Paths
    destination: str | None
    """The cluster id of the other side."""
    producers: Collection[int]
    """Under which ids mirrors have written what they read there."""

    def has(self, header: BatchHeader) -> bool:
        """Whether the batch has been at the other side."""
        producer = header.producer_id
        been = self.destination in self.paths.get(producer, frozenset())
        return producer >= 0 and (been or producer in self.producers)


async def _find_tail(
    cluster: Cluster, place: PartitionPlace, came: LaneLedger, copied: _Copied
) -> Tail | None:
    """Of one partition from its position on; None where there is nothing. `came`: the lane that leads there
    from the other side. Raises BrokerError.
    """
    position, tail = place.position, None
    while position < place.stable_end:
        position = mirrored_until(came, position)
        lane = cluster.new_lane("tail")
        within = Range(position, place.stable_end)
        reader = LogReader(cluster, place.source, within, committed_only=True, lane=lane, verifies=False)
        position = within.next
        async with aclosing(reader.entries()) as entries:
            async for entry in entries:
                if entry.header is None or not copied.has(entry.header):
                    tail = _with(tail, place.source, entry, within)
                mirrored = mirrored_until(came, entry.next)
                if mirrored >= entry.next + PASSED_OVER_MIN:
                    position = mirrored
                    break
        await cluster.release_lane(lane)
    return tail


def _with(tail: Tail | None, at: TopicPartition, entry: Entry, within: Range) -> Tail:
    """The tail, and what of a batch is within."""
    size, header = len(entry.data), entry.header
    if header is None:
        first, last, count, time_ms = entry.next - 1, entry.next - 1, 1, -1
    else:
        first, last, time_ms = max(header.base_offset, within.first), header.last_offset, header.max_timestamp
        count = min(header.record_count, header.next_offset - first)
    if tail is None:
        return Tail(
            topic=at.topic,
            partition=at.partition,
            first=first,
            last=last,
            records=count,
            bytes=size,
            first_ms=time_ms,
            last_ms=time_ms,
        )
    return replace(tail, last=last, records=tail.records + count, bytes=tail.bytes + size, last_ms=time_ms)
