"""Fetching: what to ask a leader for, and what its answer means for each partition. Pure.

A partition's answer is cut to whole batches, which stay where they are in the frame received. A batch that
does not fit what was asked for comes torn from old nodes: the next fetch of that partition asks for more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from broker.client.aborted import AbortedTransaction, aborted_transactions
from broker.client.metadata import ClusterMetadata
from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import MAGIC_POSITION, peek_size, read_header
from broker.records.reader import iterate_entries
from broker.types import NO_TOPIC_ID, Buffer, TopicId, TopicPartition
from broker.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NAMES_VERSION_MAX = 12
"""From version 13 on topics are asked for by id (KIP-516)."""
FIRST_VERSION_WITH_DIVERGENCE = 12
"""From here on a leader is told the epoch of what was read last, and says where its log parts from that."""
_CONSUMER = -1
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """Whole batches of one partition as the leader stores them, compressed and all."""

    topic_partition: TopicPartition
    records: memoryview
    """Writable, and the holder's alone. The first batch may begin before `start_offset`."""
    start_offset: int
    """The first offset asked for."""
    next_offset: int
    """Where the next fetch goes on."""
    leader_epoch: int
    """Epoch of the last batch, -1 for batches too old to have one."""
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPosition:
    """A partition to fetch, from `offset` on, at most `max_bytes` unless its next batch is larger."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    """Of the record before `offset`, where it is known: a leader whose log parts from that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """What holds for a whole request: how long the leader may wait for how much, and what it may show."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    rack: str = ""
    record_filter: str = ""
    """Which records are wanted, for nodes that know filters."""
    in_order: bool = False
    """Whoever is asked for first gets the first bytes, of nodes that do not do so by themselves."""


def build_fetch(
    positions: Iterable[PartitionPosition],
    terms: FetchTerms,
    metadata: ClusterMetadata,
    version: int = FIRST_VERSION_WITH_DIVERGENCE - 1,
) -> FetchRequest:
    """The request for the partitions; topics are named in both ways, whichever the version carries.

    `version`: the one that it will be sent in, for positions that say their leader epoch.
    """
    tells_epochs = version >= FIRST_VERSION_WITH_DIVERGENCE
    topics: dict[str, list[FetchPartition]] = defaultdict(list)
    for position in positions:
        known = metadata.partition(position.topic_partition)
        topics[position.topic_partition.topic].append(
            FetchPartition(
                partition=position.topic_partition.partition,
                current_leader_epoch=known.leader_epoch if known is not None else -1,
                fetch_offset=position.offset,
                last_fetched_epoch=position.leader_epoch if tells_epochs else -1,
                partition_max_bytes=position.max_bytes,
            )
        )
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=terms.max_wait_ms,
        min_bytes=terms.min_bytes,
        max_bytes=terms.max_bytes,
        isolation_level=int(terms.read_committed),
        rack_id=terms.rack,
        record_filter=terms.record_filter,
        in_order=terms.in_order,
        topics=[
            FetchTopic(topic=name, topic_id=_topic_id(metadata, name), partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def version_limit(positions: Iterable[PartitionPosition], metadata: ClusterMetadata) -> int | None:
    """The last version that names topics, when the id of one is not known; else None."""
    names = {position.topic_partition.topic for position in positions}
    return NAMES_VERSION_MAX if any(_topic_id(metadata, name) == NO_TOPIC_ID for name in names) else None


def read_fetch(
    response: FetchResponse, request: FetchRequest, names: Mapping[TopicId, str] | None = None
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """The answers about partitions that were asked for. `names`: of topics by their ids, where the request
    does not name all that the answer may be about.

    Raises ProtocolError for an error of the whole request.
    """
    if response.error_code:
        raise ProtocolError(ErrorCode.of(response.error_code), "fetch")
    if names is None:
        topics = [topic for topic in request.topics if topic.topic_id != NO_TOPIC_ID]
        names = {TopicId(topic.topic_id): topic.topic for topic in topics}
    for topic in response.responses:
        name = topic.topic or names.get(TopicId(topic.topic_id))
        if name is None:
            continue
        for answer in topic.partitions:
            yield TopicPartition(name, answer.partition_index), answer


def cut_batches(position: PartitionPosition, answer: PartitionData) -> FetchedBatches | None:
    """The whole batches of an answer without an error;

    None when there is none, unless a filter left none of a stretch. Raises CorruptRecordsError.
    """
    records = memoryview(answer.records or b"")
    end = last = 0
    for start, size in iterate_entries(records):
        last, end = start, start + size
    if end:
        next_offset, leader_epoch = _end_of(records[last:end])
    elif answer.filtered_to > position.offset:
        next_offset = leader_epoch = -1
    else:
        return None
    if answer.filtered_to > next_offset:
        next_offset, leader_epoch = answer.filtered_to, answer.filtered_epoch
    return FetchedBatches(
        topic_partition=position.topic_partition,
        records=records[:end],
        start_offset=position.offset,
        next_offset=max(next_offset, position.offset),
        leader_epoch=leader_epoch,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        aborted=aborted_transactions(answer),
    )


def bytes_needed(answer: PartitionData, asked_bytes: int) -> int:
    """How much to ask for when not even one batch fitted into `asked_bytes`: its size when it can be seen,
    else the double.

    Returns `asked_bytes` when the answer was simply empty. Raises CorruptRecordsError.
    """
    torn: Buffer = answer.records or b""
    if not len(torn):
        return asked_bytes
    return max(peek_size(torn) or 0, 2 * asked_bytes)


def _end_of(entry: memoryview) -> tuple[int, int]:
    """Offset after a batch or legacy entry, and its leader epoch."""
    if entry[MAGIC_POSITION] < 2:
        return int.from_bytes(entry[:_OFFSET_BYTES], "big", signed=True) + 1, -1
    header = read_header(entry)
    return header.next_offset, header.leader_epoch


def _topic_id(metadata: ClusterMetadata, name: str) -> TopicId:
    topic = metadata.topics.get(name)
    return topic.topic_id if topic is not None else NO_TOPIC_ID
