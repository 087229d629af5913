"""Where a seek moves a route that nobody runs, on real clusters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import GroupOffsetAdmin, ToLatest, ToOffset, ToTime
from broker.embedded import EmbeddedCluster
from broker.errors import BrokerError, ConfigurationError
from broker.types import TopicPartition
from mirrormaker import seeking
from mirrormaker.seeking import RouteBusyError, seek
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Topology
from tests.audit.test_time_offsets import FLIGHTS, NOON_MS, write_history
from tests.conftest import ClusterFactory
from tests.daemon.conftest import wait_until
from tests.daemon.test_mirror import address, create, produce

ROUTE = "jfk-to-aggregate"


def topology_of(
    folder: Path, cluster: ClusterFactory, delivery: str = "at_least_once", **topics: str
) -> tuple[Topology, EmbeddedCluster, EmbeddedCluster]:
    """With its source and its destination. The source has a history of 30 records in transactions of ten."""
    clusters = {name: cluster(name) for name in ("jfk", "aggregate")}
    write_history(clusters["jfk"])
    document = {
        "clusters": {
            name: {"bootstrap": [str(each) for each in there.bootstrap]} for name, there in clusters.items()
        },
        "routes": [
            {
                "from": "jfk",
                "to": "aggregate",
                "delivery": delivery,
                "topics": {"include": ["flights"], **topics},
            }
        ],
    }
    file = folder / "topology.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_topology(file), clusters["jfk"], clusters["aggregate"]


def positions(source: EmbeddedCluster) -> dict[TopicPartition, int]:
    """What the group has stored."""

    async def read() -> dict[TopicPartition, int]:
        async with Cluster(source.bootstrap) as asked:
            found = await GroupOffsetAdmin(asked).group_offsets(f"mirror/{ROUTE}")
        return {each: at.offset for each, at in found.items()}

    return asyncio.run(read())


def test_a_time_is_that_of_a_record_and_not_of_the_marker_before_it(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    topology, source, _ = topology_of(tmp_path, cluster)
    for number, offset in ((3, 3), (15, 16), (29, 31), (30, 33)):
        to = ToTime(NOON_MS + number * 1000)
        assert asyncio.run(seek(topology, ROUTE, [], to, 0)) == {FLIGHTS: offset}
        assert positions(source) == {FLIGHTS: offset}


def test_what_a_seek_cannot_note_it_does_not_pass_over(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, source, _ = topology_of(tmp_path, cluster)
    asyncio.run(seek(topology, ROUTE, [], ToOffset(3), 0))

    async def refuse(*_: object) -> None:
        raise BrokerError("it may not be written")

    monkeypatch.setattr(seeking, "note_passed_over", refuse)
    with pytest.raises(BrokerError, match="it may not be written"):
        asyncio.run(seek(topology, ROUTE, [], ToLatest(), 0))
    assert positions(source) == {FLIGHTS: 3}


async def nobody(*_: object) -> int:
    """As before a process joined its group."""
    return 0


def test_a_route_that_comes_to_work_meanwhile_is_not_moved(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, source, _ = topology_of(tmp_path, cluster)
    asyncio.run(seek(topology, ROUTE, [], ToOffset(3), 0))
    monkeypatch.setattr(seeking, "count_members", nobody)
    member = join(source)
    try:
        for to in (ToLatest(), ToTime(NOON_MS)):
            with pytest.raises(RouteBusyError, match="came to work meanwhile: pause it first, as a whole"):
                asyncio.run(seek(topology, ROUTE, [], to, 0))
    finally:
        member.close()
    assert positions(source) == {FLIGHTS: 3}


def join(source: EmbeddedCluster) -> Consumer:
    """Somebody in the route's group."""
    member = Consumer(
        {
            "bootstrap.servers": address(source),
            "group.id": f"mirror/{ROUTE}",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    member.subscribe(["flights"])
    wait_until(lambda: member.poll(0.1) is not None, "somebody in the group")
    return member


@pytest.mark.parametrize("delivery", ["exactly_once", "at_most_once"])
def test_a_route_that_came_to_work_while_its_positions_moved_is_told_of(
    cluster: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    topology, source, _ = topology_of(tmp_path, cluster, delivery=delivery)
    move_at_destination = seeking._move_at_destination
    members: list[Consumer] = []

    async def come_to_work_first(*told: Any) -> None:
        members.append(await asyncio.to_thread(join, source))
        await move_at_destination(*told)

    monkeypatch.setattr(seeking, "_move_at_destination", come_to_work_first)
    try:
        with pytest.raises(RouteBusyError, match="came to work meanwhile: pause it first, as a whole"):
            asyncio.run(seek(topology, ROUTE, [], ToOffset(3), 0))
    finally:
        for member in members:
            member.close()


@pytest.mark.parametrize("existing", ["refuse", "append"])
def test_a_seek_is_no_decision_about_a_destination_that_holds_records(
    cluster: ClusterFactory, tmp_path: Path, existing: str
) -> None:
    topology, source, destination = topology_of(tmp_path, cluster, existing=existing)
    create(destination, "jfk.flights", 2)
    produce(destination, "jfk.flights", range(5), 2)
    if existing == "append":
        assert asyncio.run(seek(topology, ROUTE, [], ToOffset(3), 0)) == {FLIGHTS: 3}
        return
    with pytest.raises(ConfigurationError, match=r"'jfk\.flights' holds records already"):
        asyncio.run(seek(topology, ROUTE, [], ToOffset(3), 0))
    assert positions(source) == {}
