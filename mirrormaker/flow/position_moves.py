"""Setting the positions of an exactly-once route from outside.

It is done as an owner of the bucket would: under its transactional id, which fences whoever writes it at the
moment. A process at work notices, takes the bucket over again, and goes on where it was told to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.client.producer_settings import ProducerSettings
from broker.client.transactional_producer import TransactionalProducer
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.positions import (
    POSITIONS_AT,
    POSITIONS_TOPIC,
    SourceId,
    transactional_id,
    value_of,
)
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.topology.model import RouteSpec


async def move_positions(destination: Cluster, route: RouteSpec, positions: Mapping[SourceId, int]) -> None:
    """Have the route go on at these offsets. Each bucket moves as a whole or not at all; to be repeated when
    it fails. Raises BrokerError.
    """
    buckets: dict[int, dict[SourceId, int]] = defaultdict(dict)
    for source, offset in positions.items():
        buckets[bucket_of(source.partition, route.buckets)][source] = offset
    async with KeptTopic(destination, POSITIONS_TOPIC):
        for bucket, moves in sorted(buckets.items()):
            await _move(destination, route, ProducerKey(bucket, 0, None), moves)


async def _move(
    destination: Cluster, route: RouteSpec, key: ProducerKey, moves: Mapping[SourceId, int]
) -> None:
    settings = ProducerSettings(transactional_id=transactional_id(route.name, key), linger_ms=0)
    async with TransactionalProducer(destination, settings=settings) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            for source, offset in moves.items():
                await producer.send(
                    POSITIONS_TOPIC,
                    encode_document(value_of(route.name, (offset,))),
                    encode_document(source.key()),
                    partition=POSITIONS_AT.partition,
                )
