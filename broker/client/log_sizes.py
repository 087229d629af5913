"""How large logs are, asked of the nodes that hold them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from broker.client.cluster import Cluster
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from broker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

_Sizes = dict[TopicPartition, int]


async def leader_log_sizes(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], BrokerError | None]:
    """Bytes in the leader's log of each partition, and the first reason why some are missing."""
    by_node: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader is not None:
            by_node[leader][partition.topic].append(partition.partition)
    answers = await asyncio.gather(
        *(_ask(cluster, node_id, wanted) for node_id, wanted in by_node.items()), return_exceptions=True
    )
    sizes: _Sizes = {}
    problem: BrokerError | None = None
    for answer in answers:
        match answer:
            case BrokerError():
                problem = problem or answer
            case BaseException():
                raise answer
            case _:
                sizes |= answer
    return sizes, problem


async def _ask(cluster: Cluster, node_id: int, wanted: Mapping[str, list[int]]) -> _Sizes:
    topics = [DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in wanted.items()]
    response = await cluster.request(node_id, DescribeLogDirsRequest(topics=topics))
    sizes: _Sizes = {}
    codes = [response.error_code, *(result.error_code for result in response.results)]
    for result in response.results:
        for topic in result.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    sizes[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
    if not response.results and wanted:
        codes.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)  # how old versions say that they may not
    if not sizes and any(codes):
        code = ErrorCode.of(next(filter(None, codes)))
        raise ProtocolError(code, f"log sizes of node {node_id}: {code.meaning}")
    return sizes
