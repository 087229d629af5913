"""Where partitions of a route that rests go on by its ledger, as its group has no position of them: for those
who only look.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker.client.cluster import Cluster
from broker.types import TopicPartition
from mirrormaker.flow.books import Written
from mirrormaker.flow.exchange import Assignment
from mirrormaker.ledger.current_lanes import lane_between
from mirrormaker.ledger.reading import find_ledger, lanes_now
from mirrormaker.ledger.route_places import RoutePlaces
from mirrormaker.topology.model import Delivery, RouteSpec


async def find_resting_places(
    route: RouteSpec, source: Cluster, destination: Cluster, partitions: Mapping[TopicPartition, str]
) -> Written:
    """What is written of these, which lead to those topics; the source's topics are known. Raises
    BrokerError.
    """
    view = await find_ledger(destination, source.cluster_id)

    def assigned(partition: TopicPartition, to: str) -> Assignment:
        lanes = [lane.destination for lane in lanes_now(view, source, partition, to)]
        destinations = tuple(lanes) or (TopicPartition(to, partition.partition),)
        return Assignment(source=partition, destinations=destinations, bucket=0, position=0)

    places = RoutePlaces(
        route.name,
        view,
        destination,
        partial(lane_between, source),
        may_repeat=route.delivery is not Delivery.AT_MOST_ONCE,
    )
    return await places.written([assigned(*each) for each in partitions.items()], {})
