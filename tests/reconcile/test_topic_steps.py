"""Steps about topics, taken at a real node."""

from __future__ import annotations

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from mirrormaker.plan.steps import CreateTopic
from mirrormaker.reconcile.topic_steps import take_topic_steps
from mirrormaker.topology.model import ClusterName
from tests.client.running import run
from tests.conftest import ClusterFactory


def test_what_somebody_else_did_is_done_but_not_by_the_step(cluster: ClusterFactory) -> None:
    node = cluster("aggregate")
    step = CreateTopic(
        cluster=ClusterName("aggregate"), name="jfk.flights", partitions=1, replication_factor=1
    )

    async def main() -> None:
        async with Cluster(node.bootstrap) as destination:
            told = [result for _ in range(2) for result in await take_topic_steps(Admin(destination), [step])]
            assert [(result.error, result.is_own) for result in told] == [(None, True), (None, False)]

    run(main)
