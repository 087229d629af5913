"""Groups that change sides between our nodes and Apache Kafka, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.client.reading_members import Brokers
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, mirror  # noqa: F401 a fixture
from tests.daemon.test_carried_groups import SYNC, read, wait_carried
from tests.daemon.test_ledger import produce_transaction
from tests.daemon.test_mirror import create
from tests.interop.test_own_client import cluster  # noqa: F401 a fixture


@pytest.fixture
def node(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """One of our nodes."""
    with EmbeddedCluster(cluster_spec(zookeeper, tmp_path, "jfk")) as node:
        yield node


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_source", [False, True], ids=["to Apache Kafka", "from Apache Kafka"])
def test_a_group_goes_on_at_the_other_side_with_the_record_after_its_last(
    node: EmbeddedCluster,
    cluster: Callable[[], Brokers],  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
    is_source: bool,
) -> None:
    kafka = cluster()
    source, destination = (kafka, node) if is_source else (node, kafka)
    create(source, "flights", 1)
    for number in range(6):  # a marker follows each, and every third is aborted
        produce_transaction(source, range(number * 10, number * 10 + 10), is_committed=number % 3 != 1)
    wanted = [number for number in range(60) if number // 10 % 3 != 1]
    running = mirror(source, destination, sync=SYNC)
    running.start()
    had = read(source, "readers", "flights", 17, start=0)
    wait_carried(destination, "readers", 17)
    had += read(destination, "readers", "jfk.flights", len(wanted) - 17)
    assert had == wanted
