"""The delivery that a route asks for, made and ended with its copier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import assert_never

from broker.client.cluster import Cluster
from broker.clock import Clock
from mirrormaker.flow.at_least_once import AtLeastOnce
from mirrormaker.flow.at_most_once import AtMostOnce
from mirrormaker.flow.books import Books
from mirrormaker.flow.delivery import Deliverer, DeliveryMode
from mirrormaker.flow.exactly_once import open_exactly_once
from mirrormaker.flow.provenance import Provenance
from mirrormaker.flow.withdrawal import Withdrawal
from mirrormaker.topology.model import Delivery, Membership, RouteSpec
from mirrormaker.topology.shared_positions import PositionOwners


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
                deliverer,
                books=books,
                provenance=provenance,
                find_owners=find_owners,
            ) as mode:
                yield mode
        case _:
            assert_never(route.delivery)
