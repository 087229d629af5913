"""Where leader epochs end in logs of many partitions, as their leaders have them (KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from broker.client.asking_leaders import Answers, ask_leaders_within
from broker.client.cluster import Cluster
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1


class EpochEnd(NamedTuple):
    """Of the newest epoch in the log that is not above the one asked about."""

    epoch: int
    offset: int
    """After its last record; -1, and the epoch too: the log does not tell."""


async def epoch_ends_found(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, timeout_ms: float
) -> Answers[EpochEnd]:
    """For each partition where the log ends that its leader has of the epoch or of those before it. Leaders
    that move are found again, for `timeout_ms`; a partition of which nothing is told holds back no other.
    """

    async def ask(node_id: int, asked: Mapping[TopicPartition, int]) -> Answers[EpochEnd]:
        return await _ask(cluster, node_id, asked)

    return await ask_leaders_within(cluster, wanted, ask, timeout_ms=timeout_ms)


async def _ask(cluster: Cluster, node_id: int, asked: Mapping[TopicPartition, int]) -> Answers[EpochEnd]:
    connection = await cluster.connection(node_id)
    topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for (topic, partition), epoch in asked.items():
        topics[topic].append(OffsetForLeaderPartition(partition=partition, leader_epoch=epoch))
    response = await connection.request(
        OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[OffsetForLeaderTopic(topic=topic, partitions=each) for topic, each in topics.items()],
        )
    )
    answers: Answers[EpochEnd] = Answers({}, {})
    for told in response.topics:
        for each in told.partitions:
            source = TopicPartition(told.topic, each.partition)
            if each.error_code:
                code = ErrorCode.of(each.error_code)
                answers.failures[source] = ProtocolError(code, f"{source}: {code.meaning}")
            else:
                answers.found[source] = EpochEnd(each.leader_epoch, each.end_offset)
    return answers
