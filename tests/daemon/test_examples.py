"""The shipped topologies, started as `mirrormaker up` does: each carries what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, ConfigResource

from broker.embedded import ClusterSpec, EmbeddedCluster
from broker.loopback import free_ports_in_a_row
from mirrormaker.topology.document import PlainLoader
from tests.conftest import OWN_PORTS
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, MirrorProcess, mirrormaker, wait_until
from tests.daemon.test_carried_groups import commit, committed
from tests.daemon.test_mirror import address, assert_complete_and_in_order, consume, create, produce

FOLDER = Path(__file__).parents[2] / "topologies"
PARTITIONS, RECORDS = 2, 200
DAY_MS = 86_400_000
CARRIED: Mapping[str, list[tuple[str, str, str, str]]] = {
    "demo": [
        ("jfk", "flights", "aggregate", "jfk.flights"),
        ("lga", "flights", "aggregate", "lga.flights"),
        ("ewr", "flights-late", "aggregate", "ewr.flights-late"),
    ],
    "aggregate": [
        ("frankfurt", "orders", "aggregate", "frankfurt.orders"),
        ("singapore", "orders", "aggregate", "singapore.orders"),
    ],
    "hub-and-spoke": [
        ("oslo", "sales", "hub", "oslo.sales"),
        ("oslo", "log-tills", "hub", "oslo.log-tills"),
        ("porto", "sales", "hub", "porto.sales"),
        ("porto", "log-tills", "hub", "porto.log-tills"),
        ("hub", "prices", "oslo", "prices"),
    ],
    "fan-out": [
        ("headquarters", "prices", "europe", "prices"),
        ("headquarters", "prices", "asia", "prices"),
    ],
    "chain": [
        ("plant", "alarms", "region", "plant.alarms"),
        ("plant", "alarms", "centre", "region.plant.alarms"),
    ],
    "pipelines": [("jfk", "flights", "aggregate", "jfk.flights")],
}
"""Example -> source cluster, topic, destination, topic there."""
IN_A_TEST_OF_THEIR_OWN = {"replicated", "migration", "active-active", "disaster-recovery"}


class Running:
    """An example on this machine: clusters that run elsewhere run here, all on ports that are free."""

    def __init__(self, example: Path, folder: Path, mirror: MirrorFactory) -> None:
        document = yaml.load(example.read_text(), Loader=PlainLoader)
        self.clusters = {
            name: self._moved(name, cluster, folder) for name, cluster in document["clusters"].items()
        }
        file = folder / example.name
        file.write_text(yaml.safe_dump(document | {"data_dir": str(folder / "data")}))
        self.process: MirrorProcess = mirror.of_file(file, verb="up")

    def _moved(self, name: str, cluster: dict[str, Any], folder: Path) -> EmbeddedCluster:
        """Only for its addresses: `up` starts the nodes."""
        for elsewhere in ("bootstrap", "security", "cluster_id"):
            cluster.pop(elsewhere, None)
        embedded = cluster.setdefault("embedded", {"brokers": 1})
        embedded["port"] = free_ports_in_a_row(embedded["brokers"], among=OWN_PORTS)
        return EmbeddedCluster(ClusterSpec(name=name, zookeeper_connect="", directory=folder, **embedded))

    def start(self) -> None:
        self.process.start()
        wait_until(lambda: "\nready\n" in self.process.log.read_text(), "ready", 2 * PATIENCE_SECONDS)

    def is_copied(self) -> bool:
        """Whether no route has anything left to copy."""
        at_work = [route for route in self.routes() if route["state"] != "standing by"]
        return all(route["partitions"] and route["lag"]["messages"] == 0 for route in at_work)

    def count(self) -> int:
        """Records that were copied, as far as the processes have told by now."""
        return sum(route["counts"].get("records", 0) for route in self.routes())

    def routes(self) -> list[dict[str, Any]]:
        """As `status` tells them."""
        done = mirrormaker("status", str(self.process.file), "--output", "json")
        routes: list[dict[str, Any]] = json.loads(done.stdout)["routes"]
        return routes


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path, mirror: MirrorFactory) -> Iterator[Running]:
    example = Running(FOLDER / f"{request.param}.yaml", tmp_path, mirror)
    example.start()
    yield example
    assert example.process.stop() == 0


def test_every_example_is_started() -> None:
    examples = {file.stem for file in FOLDER.glob("*.yaml")}
    assert examples == CARRIED.keys() | IN_A_TEST_OF_THEIR_OWN


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("running", "carried"), CARRIED.items(), indirect=["running"], ids=CARRIED)
def test_an_example_carries_what_it_says(running: Running, carried: list[tuple[str, str, str, str]]) -> None:
    for source, topic in dict.fromkeys(route[:2] for route in carried):
        create(running.clusters[source], topic, PARTITIONS)
        produce(running.clusters[source], topic, range(RECORDS), PARTITIONS)
    wait_until(running.is_copied, "everything copied")
    for _, _, destination, copy in carried:
        copies = consume(running.clusters[destination], copy, PARTITIONS, RECORDS)
        assert_complete_and_in_order(copies, RECORDS)
    planned = mirrormaker("plan", str(running.process.file))
    assert planned.returncode in (0, 2), planned.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("running", ["migration"], indirect=True)
def test_a_migration_brings_records_settings_and_groups_and_tells_that_there_are_no_rights(
    running: Running,
) -> None:
    old, new = running.clusters["old"], running.clusters["new"]
    create(old, "orders", PARTITIONS, **{"retention.ms": str(DAY_MS)})
    for first, end in (0, 40), (40, RECORDS):  # in transactions: a marker stands between the copies
        produce(old, "orders", range(first, end), PARTITIONS)
        wait_until(lambda end=end: running.count() == end and running.is_copied(), "everything copied")
    commit(old, "readers", "orders", 30)
    copies = consume(new, "orders", PARTITIONS, RECORDS)
    assert_complete_and_in_order(copies, RECORDS)
    place = [copy.offset() for copy in copies if copy.partition() == 0][30]
    assert place > 30
    there = AdminClient({"bootstrap.servers": address(new)})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    settings = there.describe_configs([resource])[resource].result(PATIENCE_SECONDS)
    assert settings["retention.ms"].value == str(DAY_MS)
    wait_until(lambda: committed(new, "readers", "orders")[0] == place, "the group is carried")
    told = running.process.status()
    assert "access rules of cluster 'old': it tells none" in told["problem"]
    planned = mirrormaker("plan", str(running.process.file))
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "! old: access rules: UNSUPPORTED_VERSION" in planned.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("running", ["disaster-recovery"], indirect=True)
def test_a_primary_is_switched_to_its_standby_which_has_everything(running: Running) -> None:
    primary, standby = running.clusters["primary"], running.clusters["standby"]
    wait_until(lambda: len(partitions_of(primary, "orders")) == 6, "the topics of the file made")
    produce(primary, "orders", range(RECORDS), 6)
    wait_until(running.is_copied, "everything copied")
    file = str(running.process.file)
    rehearsed = mirrormaker("failover", file, "orders", "--dry-run")
    assert (rehearsed.returncode, rehearsed.stderr) == (0, "")
    assert "from primary to standby, planned" in rehearsed.stdout
    switched = mirrormaker("failover", file, "orders", "--timeout", "30")
    assert switched.returncode == 0, switched.stderr
    assert_complete_and_in_order(consume(standby, "orders", 6, RECORDS), RECORDS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("running", ["active-active"], indirect=True)
def test_two_sides_that_both_take_writes_have_every_record_once(running: Running) -> None:
    partitions, records = 6, 5_000
    sides = {"east": range(records), "west": range(records, 2 * records)}
    wait_until(
        lambda: all(len(partitions_of(running.clusters[side], "orders")) == partitions for side in sides),
        "the topics of the file made",
    )
    with ThreadPoolExecutor() as threads:
        writers = [
            threads.submit(produce, running.clusters[side], "orders", numbers, partitions)
            for side, numbers in sides.items()
        ]
    for writer in writers:
        writer.result()
    wait_until(running.is_copied, "everything copied")
    for side in sides:
        copies = consume(running.clusters[side], "orders", partitions, 2 * records)
        assert sorted(int(message.value() or b"") for message in copies) == list(range(2 * records))
    wait_until(lambda: running.count() == 2 * records, "each is counted once")
    assert all(route["objective"]["state"] in ("kept", "breached") for route in running.routes())


def partitions_of(cluster: EmbeddedCluster, topic: str) -> list[int]:
    metadata = AdminClient({"bootstrap.servers": address(cluster)}).list_topics(timeout=PATIENCE_SECONDS)
    return list(metadata.topics[topic].partitions) if topic in metadata.topics else []
