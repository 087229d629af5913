"""Setting the positions of an exactly-once route from outside.

It is done as an owner of the bucket would: under its transactional id, which fences whoever writes it at the
moment. A process at work notices, takes the bucket over again, and goes on where it was told to. Positions of
records that only pass through the source go: from the bucket's position on they are copied again too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from broker.client.cluster import Cluster
from broker.client.producer_settings import ProducerSettings
from broker.client.transactional_producer import TransactionalProducer
from broker.types import TopicPartition
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Entry, encode_document
from mirrormaker.flow.positions import (
    POSITIONS_AT,
    POSITIONS_TOPIC,
    Place,
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
    buckets: dict[int, list[Entry]] = defaultdict(list)
    for source, offset in positions.items():
        value = value_of(route.name, Place((offset,)))
        buckets[bucket_of(source.partition, route.buckets)].append((source.key(), value))
    async with KeptTopic(destination, POSITIONS_TOPIC) as kept:
        for bucket, moves in sorted(buckets.items()):
            await _write(destination, transactional_id(route.name, ProducerKey(bucket, 0, None)), moves)
        await kept.read_to_end()
        for name, entries in _passing(kept, route, positions).items():
            await _write(destination, name, entries)


def _passing(kept: KeptTopic, route: RouteSpec, positions: Mapping[SourceId, int]) -> dict[str, list[Entry]]:
    """By transactional id, positions of these sources that are of records from elsewhere, to be deleted."""
    moved = [source.key() for source in positions]
    found: dict[str, list[Entry]] = defaultdict(list)
    for key, _ in kept.entries():
        path = key.get("path")
        if not path or {name: value for name, value in key.items() if name != "path"} not in moved:
            continue
        bucket = bucket_of(TopicPartition(key["topic"], key["partition"]), route.buckets)
        found[transactional_id(route.name, ProducerKey(bucket, 0, None), tuple(path))].append((key, None))
    return found


async def _write(destination: Cluster, name: str, entries: Iterable[Entry]) -> None:
    settings = ProducerSettings(transactional_id=name, linger_ms=0)
    async with TransactionalProducer(destination, settings=settings) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            for key, value in entries:
                await producer.send(
                    POSITIONS_TOPIC,
                    None if value is None else encode_document(value),
                    encode_document(key),
                    partition=POSITIONS_AT.partition,
                )
