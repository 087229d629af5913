"""Steps about topics, taken at a real node."""

from __future__ import annotations

from pathlib import Path

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.clock import SystemClock
from broker.embedded import EmbeddedCluster
from broker.errors import ErrorCode
from broker.telemetry import logger
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange
from mirrormaker.reconcile.apply import apply_steps
from mirrormaker.reconcile.repair import Repairer
from mirrormaker.reconcile.topic_steps import take_topic_steps
from mirrormaker.topology.model import ClusterName, ClusterSpec, RepairKind, SyncSpec, Topology
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
            grown = AddPartitions(cluster=step.cluster, name=step.name, have=1, partitions=3)
            told = [
                result for _ in range(2) for result in await take_topic_steps(Admin(destination), [grown])
            ]
            assert [(result.error, result.is_own) for result in told] == [(None, True), (None, False)]

    run(main)


AT = ClusterName("aggregate")
WANTED = {"cleanup.policy": "compact", "retention.ms": "86400000", "max.message.bytes": "-7", "no.such": "1"}


def new_topic(**settings: str) -> CreateTopic:
    return CreateTopic(cluster=AT, name="jfk.flights", partitions=1, replication_factor=1, config=settings)


def changed(**settings: str) -> ChangeSettings:
    changes = {name: SettingChange(old="0", new=value) for name, value in settings.items()}
    return ChangeSettings(cluster=AT, name="jfk.flights", changes=changes)


def test_a_topic_is_made_without_the_settings_that_its_cluster_does_not_take(cluster: ClusterFactory) -> None:
    node = cluster("aggregate")

    async def main() -> None:
        async with Cluster(node.bootstrap) as destination:
            admin = Admin(destination)
            [result] = await take_topic_steps(admin, [new_topic(**WANTED)])
            assert result.is_own
            assert result.refused.keys() == {"max.message.bytes", "no.such"}
            assert "INVALID_CONFIG" in result.refused["no.such"]
            told = await admin.describe_topic_configs("jfk.flights")
            assert told["retention.ms"].value == WANTED["retention.ms"]
            assert told["cleanup.policy"].value == "compact"

    run(main)


def test_a_topic_whose_essential_settings_are_refused_is_not_made(cluster: ClusterFactory) -> None:
    node = cluster("aggregate")

    async def main() -> None:
        async with Cluster(node.bootstrap) as destination:
            step = new_topic(**{**WANTED, "cleanup.policy": "burn"})
            [result] = await take_topic_steps(Admin(destination), [step])
            assert result.code is ErrorCode.INVALID_CONFIG
            assert "jfk.flights" not in (await destination.refresh()).topics

    run(main)


def test_a_setting_that_a_cluster_does_not_take_keeps_no_other_from_the_topic(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    node = cluster("aggregate")
    asked = topology_of(tmp_path, node)
    told: list[dict[str, object]] = []

    class Listener:
        def note(self, event: str, **details: object) -> None:
            told.append({"event": event, **details})

        note_end = note

    async def main() -> None:
        async with Cluster(node.bootstrap) as destination:
            admin = Admin(destination)
            await take_topic_steps(admin, [new_topic()])
            repairer = Repairer(logger("test"), Listener())
            step = changed(**{"retention.ms": "86400000", "no.such": "1"})
            repair = await repairer.repair(admin, [step], SyncSpec(), is_unseen=lambda _: False)
            assert [one.step for one in repair.drift] == [changed(**{"no.such": "1"})]
            assert repair.drift[0].kind is RepairKind.CONFIG
            assert repair.drift[0].reason.startswith("no.such: ")
            assert [each["event"] for each in told] == ["drift_found"]
            configs = await admin.describe_topic_configs("jfk.flights")
            assert configs["retention.ms"].value == "86400000"
            for unseen, count in (({"jfk.flights"}, 1), ({"jfk.planes"}, 0)):
                repair = await repairer.repair(admin, [], SyncSpec(), is_unseen=unseen.__contains__)
                assert len(repair.drift) == count
            assert [each["event"] for each in told] == ["drift_found", "drift_gone"]
            [result] = await take_topic_steps(admin, [changed(**{"no.such": "1"})])
            assert (result.error or "").startswith("no.such: ")

            step = changed(**{"retention.ms": "96400000", "no.such": "1"})
            results = [each async for each in apply_steps(asked, [step], SystemClock())]
            assert [(each.error or "").startswith("done, but for no.such: ") for each in results] == [True]

    run(main)


def topology_of(folder: Path, node: EmbeddedCluster) -> Topology:
    spec = ClusterSpec(name=AT, bootstrap=node.bootstrap)
    return Topology(clusters={AT: spec}, routes=(), data_dir=folder)
