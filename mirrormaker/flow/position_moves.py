"""Setting the positions of an exactly-once route from outside, and taking them back.

It is done as an owner of the bucket would: under its transactional id, which fences whoever writes it at the
moment. A process at work notices, takes the bucket over again, and goes on where it was told to. Positions of
records that only pass through the source go: from the bucket's position on they are copied again too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster, CoordinatorKind
from broker.client.producer_settings import ProducerSettings
from broker.client.transactional_producer import TransactionalProducer
from broker.errors import BrokerError, CorruptRecordsError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.flow.buckets import bucket_of
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document, Entry, encode_document
from mirrormaker.flow.positions import (
    POSITIONS_AT,
    POSITIONS_TOPIC,
    Place,
    SourceId,
    no_place,
    place_in,
    transactional_id,
    value_of,
)
from mirrormaker.flow.producers import ProducerKey
from mirrormaker.topology.model import RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners

READY_RETRY_MS = 15_000
"""Between looks at a cluster that lacks its topic of transactions, and some nodes."""


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
        passing = [key for key in _stored(kept, positions) if key.get("path")]
    await _delete(destination, route, passing)


async def make_ready(destination: Cluster, route: RouteSpec) -> None:
    """Have the destination make its topic of transactions while it has all its nodes: it makes it when first
    asked, with all replicas or not at all, and without it no position can be moved. Tried until it is there.
    """
    while True:
        try:
            await destination.coordinator(
                transactional_id(route.name, ProducerKey(0, 0, None)), CoordinatorKind.TRANSACTION
            )
        except BrokerError:
            await asyncio.sleep(READY_RETRY_MS / 1000)
        else:
            return


class FoundPlaces(NamedTuple):
    """What the destination says; partitions that it says nothing of are in neither."""

    places: dict[TopicPartition, Place]
    failures: dict[TopicPartition, CorruptRecordsError]
    """Why it is not known what it says of these."""


async def find_positions(
    destination: Cluster, owners: PositionOwners, sources: Mapping[SourceId, Assignment]
) -> FoundPlaces:
    """Of these, each as it is assigned now, for the route of `owners`. A transaction that was left open is
    waited for. Raises BrokerError.
    """
    found = FoundPlaces({}, {})
    if not await _is_there(destination):
        return found
    async with KeptTopic(destination, POSITIONS_TOPIC) as kept:
        await kept.read_to_end()
        for source, assignment in sources.items():
            value = kept.get(source.key())
            if value is None or not _is_ours(source.key(), value, owners):
                continue
            try:
                found.places[source.partition] = place_in(value, assignment.destinations, assignment.spread)
            except ValueError as error:
                found.failures[source.partition] = no_place(source, error)
    return found


async def withdraw_positions(
    destination: Cluster,
    route: RouteSpec,
    sources: Collection[SourceId],
    owners: PositionOwners | None = None,
) -> list[TopicPartition]:
    """Have the destination say nothing of these any more for this route, so that the positions of its group
    count; those of which it did say something. Raises BrokerError.
    """
    owners = owners or PositionOwners(route)
    if not await _is_there(destination):
        return []
    async with KeptTopic(destination, POSITIONS_TOPIC) as kept:
        await kept.read_to_end()
        stored = [key for key in _stored(kept, sources) if _is_ours(key, kept.get(key) or {}, owners)]
    await _delete(destination, route, stored)
    return sorted({TopicPartition(key["topic"], key["partition"]) for key in stored})


def _is_ours(key: Document, value: Document, owners: PositionOwners) -> bool:
    return owners.may_withdraw(value.get("route"), key["topic"], key["to"])


async def withdraw_readable(destination: Cluster, route: RouteSpec, sources: Collection[SourceId]) -> None:
    """The same for a route that goes by them only where it may read them. Raises BrokerError."""
    try:
        await withdraw_positions(destination, route, sources)
    except ProtocolError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise


async def _is_there(destination: Cluster) -> bool:
    """Whether there are positions; looking makes no topic."""
    metadata = await destination.refresh([POSITIONS_TOPIC])
    return bool(metadata.partitions(POSITIONS_TOPIC))


def _stored(kept: KeptTopic, sources: Iterable[SourceId]) -> list[Document]:
    """Keys of what is said of these: also of their records from elsewhere, and of topics that had their names
    before, which would make these ones to be read from their beginning.
    """
    wanted = {_place(source.key()) for source in sources}
    return [key for key, _ in kept.entries() if _place(key) in wanted]


def _place(key: Document) -> bytes:
    return encode_document({name: value for name, value in key.items() if name not in ("path", "topic_id")})


async def _delete(destination: Cluster, route: RouteSpec, keys: Iterable[Document]) -> None:
    found: dict[str, list[Entry]] = defaultdict(list)
    for key in keys:
        bucket = bucket_of(TopicPartition(key["topic"], key["partition"]), route.buckets)
        owner = transactional_id(route.name, ProducerKey(bucket, 0, None), tuple(key.get("path", ())))
        found[owner].append((key, None))
    for owner, entries in found.items():
        await _write(destination, owner, entries)


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
