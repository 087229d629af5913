"""Which partitions count when groups are carried to the other side."""

from __future__ import annotations

from broker.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from broker.types import TopicPartition
from mirrormaker.failover.groups import copied_lanes
from mirrormaker.failover.partitions import PartitionPlace
from mirrormaker.topology.model import ClusterName, RouteName, RouteSpec, TopicSelection


def route(name: str) -> RouteSpec:
    return RouteSpec(
        name=RouteName(name),
        source=ClusterName("primary"),
        destination=ClusterName("standby"),
        topics=TopicSelection(include=(".*",)),
    )


def place(of: RouteSpec, topic: str, partition: int = 0) -> PartitionPlace:
    at = TopicPartition(topic, partition)
    return PartitionPlace(route=of, source=at, to=at, committed=None, start=0, stable_end=0, end=0)


def test_a_partition_without_a_copy_holds_up_no_switch_and_one_without_a_leader_is_not_passed_over() -> None:
    forth, other = route("forth"), route("other")
    partitions = {0: PartitionMetadata(leader=1), 1: PartitionMetadata(leader=-1)}
    there = ClusterMetadata(topics={"orders": TopicMetadata(name="orders", partitions=partitions)})
    places = [place(forth, "orders", number) for number in range(3)]
    places += [place(forth, "empty"), place(other, "orders")]
    orders = [TopicPartition("orders", number) for number in range(2)]
    assert copied_lanes(forth, places, there) == {at: at for at in orders}
