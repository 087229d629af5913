"""Where partitions of a route that rests go on by its ledger, as its group has no position of them: for those
who only look.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow.books import Written
from mirrormaker.flow.exchange import Assignment
from mirrormaker.ledger.lane_id import LaneId
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

    def lane_of(partition: TopicPartition, to: TopicPartition) -> LaneId:
        known = source.topics.get(partition.topic)
        topic_id = None if known is None or known.topic_id == NO_TOPIC_ID else str(known.topic_id)
        return LaneId(
            source.cluster_id, partition.topic, topic_id, partition.partition, to.topic, to.partition
        )

    def assigned(partition: TopicPartition, to: str) -> Assignment:
        lanes = [lane.destination for lane in lanes_now(view, source, partition, to)]
        destinations = tuple(lanes) or (TopicPartition(to, partition.partition),)
        return Assignment(source=partition, destinations=destinations, bucket=0, position=0)

    places = RoutePlaces(
        route.name,
        view,
        destination,
        lane_of,
        lambda event, **details: None,
        may_repeat=route.delivery is not Delivery.AT_MOST_ONCE,
    )
    return await places.written([assigned(*each) for each in partitions.items()], {})
