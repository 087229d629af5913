"""The delivery that a route asks for, made and ended with its copier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import assert_never

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError
from broker.types import TopicPartition
from mirrormaker.flow.at_least_once import AtLeastOnce
from mirrormaker.flow.at_most_once import AtMostOnce
from mirrormaker.flow.books import Books
from mirrormaker.flow.bucket_losses import LostBucket
from mirrormaker.flow.delivery import DeliveryMode
from mirrormaker.flow.exactly_once import open_exactly_once
from mirrormaker.flow.facts import Fact
from mirrormaker.flow.kept_topic import BegunAnew
from mirrormaker.flow.provenance import Provenance
from mirrormaker.flow.trouble import Trouble
from mirrormaker.flow.withdrawal import Withdrawal
from mirrormaker.topology.model import Delivery, Membership, RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """What a copier does for its delivery."""

    on_lost: Callable[[LostBucket], None]
    """Forget the partitions of a bucket at once, and take it over again."""
    on_not_taken: Callable[[TopicPartition, BrokerError], None]
    """A partition that was to be taken over is not: this is why."""
    on_progress: Callable[[], None]
    """Look at the machine again: it may fetch or send more."""
    on_waiting: Callable[[], None]
    """Commit positions to the group soon."""
    on_fact: Callable[[Fact], None]
    find_refusal: Callable[[TopicPartition], Trouble | None]
    on_begun_anew: BegunAnew
    """The destination lost what the delivery keeps there."""
    """What a partition waits for since the destination has refused something of it."""


@asynccontextmanager
async def open_delivery(
    route: RouteSpec,
    source: Cluster,
    destination: Cluster,
    clock: Clock,
    deliverer: Deliverer,
    *,
    books: Books | None,
    provenance: Provenance | None,
    find_owners: Callable[[], PositionOwners],
) -> AsyncIterator[DeliveryMode]:
    """By `route.delivery`. `find_owners`: of positions, by the file of now. Raises BrokerError when the
    destination cannot be asked.
    """
    match route.delivery:
        case Delivery.AT_LEAST_ONCE:
            yield AtLeastOnce(Withdrawal(route, source, destination, find_owners))
        case Delivery.AT_MOST_ONCE:
            yield AtMostOnce(
                keeps_notes=route.membership is not Membership.ZOOKEEPER,
                on_waiting=deliverer.on_waiting,
                on_fact=deliverer.on_fact,
                on_not_taken=deliverer.on_not_taken,
                withdrawal=Withdrawal(route, source, destination, find_owners),
            )
        case Delivery.EXACTLY_ONCE:
            async with open_exactly_once(
                route,
                source,
                destination,
                clock,
                on_lost=deliverer.on_lost,
                on_not_taken=deliverer.on_not_taken,
                on_progress=deliverer.on_progress,
                on_fact=deliverer.on_fact,
                find_refusal=deliverer.find_refusal,
                books=books,
                provenance=provenance,
                find_owners=find_owners,
                on_begun_anew=deliverer.on_begun_anew,
            ) as mode:
                yield mode
        case _:
            assert_never(route.delivery)
