"""Offsets of many partitions by time, each asked of its leader, all leaders at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from broker.client.asking_leaders import Answers, Ask, ask_leaders, ask_leaders_within
from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST = -1
"""In place of a timestamp: the offset of the next record."""
EARLIEST = -2
"""In place of a timestamp: the first offset kept."""
MAX_TIMESTAMP = -3
"""In place of a timestamp: the record with the greatest timestamp (KIP-734)."""

NO_OFFSET = -1

_CONSUMER = -1
_DEBUGGER = -2
"""Who asks any replica, the leader or not, and is told of its log as it is."""
_REPLICA_TIMEOUT_MS = 5_000
_FIRST_VERSION_WITH_ISOLATION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    """An offset found by time;

    `offset` is -1 when no record is that young, `timestamp` -1 where it is not told.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


Listed = Answers[OffsetAndTimestamp]


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: float = 30_000,
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """For each partition the first offset at or after its timestamp (milliseconds, or EARLIEST, LATEST,
    MAX_TIMESTAMP).

    `read_committed` makes LATEST the last stable offset. Leaders that move are found again, for `timeout_ms`.
    Raises ProtocolError of the first partition that fails for good, ConnectionFailedError,
    RequestTimedOutError.
    """
    retries = cluster.retries(timeout_ms)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    failures: dict[TopicPartition, BrokerError] = {}
    ask = _asking(cluster, read_committed)
    while missing := {partition: when for partition, when in wanted.items() if partition not in found}:
        if failures:
            errors = list(failures.values())
            await retries.pause(next((error for error in errors if not is_retriable(error)), errors[0]))
        told = await ask_leaders(cluster, missing, ask, refresh=bool(failures))
        found |= told.found
        failures = told.failures
    return found


async def list_offsets_found(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: float,
) -> Listed:
    """As `list_offsets`, but a partition of which nothing is told, or whose leader is not found within
    `timeout_ms`, holds back no other.
    """
    return await ask_leaders_within(cluster, wanted, _asking(cluster, read_committed), timeout_ms=timeout_ms)


async def earliest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The first offset kept of each partition. Raises as `list_offsets` does."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    return {partition: at.offset for partition, at in found.items()}


async def latest_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of the next record of each partition. Raises as `list_offsets` does."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {partition: at.offset for partition, at in found.items()}


async def replica_ends(
    cluster: Cluster, replicas: Mapping[TopicPartition, Collection[int]]
) -> dict[tuple[TopicPartition, int], int]:
    """Where the log of each of these replicas (broker ids by partition) ends, committed or not; those are
    missing whose node does not answer.
    """
    by_node: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, brokers in replicas.items():
        for broker in brokers:
            by_node[broker][partition] = LATEST
    ends: dict[tuple[TopicPartition, int], int] = {}

    async def ask(node_id: int, wanted: Mapping[TopicPartition, int]) -> None:
        try:
            told = await _ask(cluster, node_id, wanted, False, _DEBUGGER, _REPLICA_TIMEOUT_MS)
        except BrokerError:
            return
        ends.update({(partition, node_id): at.offset for partition, at in told.found.items()})

    await asyncio.gather(*(ask(node_id, wanted) for node_id, wanted in by_node.items()))
    return ends


def _asking(cluster: Cluster, read_committed: bool) -> Ask[OffsetAndTimestamp]:
    async def ask(node_id: int, wanted: Mapping[TopicPartition, int]) -> Listed:
        return await _ask(cluster, node_id, wanted, read_committed)

    return ask


async def _ask(
    cluster: Cluster,
    node_id: int,
    wanted: Mapping[TopicPartition, int],
    read_committed: bool,
    replica_id: int = _CONSUMER,
    timeout_ms: int | None = None,
) -> Listed:
    connection = await cluster.connection(node_id)
    version = connection.version_of(ListOffsetsRequest)
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, when in wanted.items():
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=when)
        topics[partition.topic].append(asked)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=int(read_committed and version >= _FIRST_VERSION_WITH_ISOLATION),
        topics=[ListOffsetsTopic(name=topic, partitions=asked) for topic, asked in topics.items()],
        timeout_ms=int(cluster.settings.request_timeout_ms),
    )
    response = await connection.request(request, version, timeout_ms=timeout_ms)
    listed: Listed = Answers({}, {})
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                code = ErrorCode.of(answer.error_code)
                listed.failures[partition] = ProtocolError(code, f"{partition}: {code.meaning}")
                continue
            oldest_form = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
            listed.found[partition] = OffsetAndTimestamp(
                offset=oldest_form, timestamp=answer.timestamp, leader_epoch=answer.leader_epoch
            )
    return listed
