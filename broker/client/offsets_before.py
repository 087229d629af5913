"""Offsets of one partition at or before a time, as many as wanted: what version 0 of ListOffsets tells."""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.offsets import EARLIEST, LATEST, NO_OFFSET
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

_CONSUMER = -1


async def offsets_before(
    cluster: Cluster, node_id: int, partition: TopicPartition, timestamp: int, count: int
) -> list[int]:
    """At most `count` offsets of the partition, the largest first: the one that `timestamp` (milliseconds, or
    LATEST, EARLIEST) leads to, then beginnings of segments before it.

    Nodes that no longer serve version 0 tell the first and the last of these only. Raises ProtocolError,
    ConnectionFailedError, RequestTimedOutError.
    """
    connection = await cluster.connection(node_id)
    try:
        connection.version_of(ListOffsetsRequest, at_most=0)
    except ProtocolError:
        return await _from_both_ends(connection, partition, timestamp, count)
    answer = await _ask(connection, partition, timestamp, 0, count)
    return list(answer.old_style_offsets)


async def _from_both_ends(
    connection: Connection, partition: TopicPartition, timestamp: int, count: int
) -> list[int]:
    version = connection.version_of(ListOffsetsRequest)
    last = (await _ask(connection, partition, timestamp, version)).offset
    if last == NO_OFFSET:  # no record is that young
        last = (await _ask(connection, partition, LATEST, version)).offset
    first = (await _ask(connection, partition, EARLIEST, version)).offset
    return sorted({last, first}, reverse=True)[:count]


async def _ask(
    connection: Connection, partition: TopicPartition, timestamp: int, version: int, count: int = 1
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=partition.partition, timestamp=timestamp, max_num_offsets=count
    )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
    )
    response = await connection.request(request, version)
    answer = response.topics[0].partitions[0]
    if answer.error_code:
        code = ErrorCode.of(answer.error_code)
        raise ProtocolError(code, f"{partition}: {code.meaning}")
    return answer
