"""What a route learns of its destination while it copies."""

from __future__ import annotations

import asyncio

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.topic_admin import NewTopic
from broker.types import TopicPartition
from broker.wire.messages.describe_configs import DescribeConfigsRequest
from mirrormaker.flow.crossing import Crossing
from mirrormaker.flow.exchange import FlowConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.side_topics import read_batch_sizes_max
from mirrormaker.flow.trouble import Trouble, TroubleKind
from tests.client.peers import Peer, PeerCluster
from tests.client.running import run, until
from tests.conftest import ClusterFactory
from tests.plan.worlds import route

SOURCE, DESTINATION = TopicPartition("flights", 0), "jfk.flights"
LONG_MS = 1_000_000


def test_a_partition_that_stands_for_its_size_is_fetched_soon_after_the_limit_is_raised(
    cluster: ClusterFactory,
) -> None:
    node = cluster("aggregate")

    async def main() -> None:
        async with Cluster(node.bootstrap) as destination:
            admin = Admin(destination)
            small = {"max.message.bytes": "2000"}
            topic = NewTopic(name=DESTINATION, partitions=1, replication_factor=1, configs=small)
            await admin.create_topic(topic)
            crossing = Crossing(route(), destination)
            await crossing.make_ready(["flights"])
            machine = FlowMachine(FlowConfig())
            machine.assign([crossing.assignment(SOURCE)])
            larger = asyncio.Event()
            following = asyncio.create_task(crossing.follow_limits(machine, larger.set))
            await larger.wait()
            machine.halt(
                Trouble(kind=TroubleKind.OVERSIZE, source=SOURCE, position=0, resume_at=1, problem="large")
            )
            machine.hold_fetch(SOURCE, LONG_MS)
            await admin.alter_topic_configs(DESTINATION, {"max.message.bytes": "9000"})
            await until(lambda: machine.partitions[SOURCE].fetch_not_before_ms < LONG_MS)
            following.cancel()
            await asyncio.wait([following])

    run(main)


def test_a_cluster_that_tells_no_settings_at_all_tells_no_size_of_any_topic() -> None:
    async def main() -> None:
        async with Peer() as peer:
            del peer.versions[DescribeConfigsRequest.api_key]
            async with Cluster(PeerCluster(peer).bootstrap) as destination:
                assert await read_batch_sizes_max(destination, ["a", "b"]) == {"a": None, "b": None}

    run(main)
