"""Mirrors of the same names both ways between our nodes and Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirror, wait_until  # noqa: F401 a fixture
from tests.daemon.test_provenance import (
    RECORDS,
    assert_everything_once_everywhere,
    is_copied,
    mesh,
    routes_of,
    start,
    total,
    write,
)
from tests.interop.test_own_client import cluster as apache  # noqa: F401 a fixture


@pytest.mark.timeout(300)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_every_record_is_once_at_our_nodes_and_at_apache_kafka(
    cluster: ClusterFactory,
    apache: Callable[[], Brokers],  # noqa: F811
    mirror: MirrorFactory,  # noqa: F811
    tmp_path: Path,
    delivery: str,
) -> None:
    clusters: dict[str, Brokers] = {"a": cluster("ours"), "b": apache()}
    start(clusters)
    running = mirror.of_file(mesh(tmp_path / "mesh", clusters, [("a", "b"), ("b", "a")], delivery=delivery))
    running.start()
    with ThreadPoolExecutor() as writers:
        list(writers.map(lambda name: write(clusters, name), clusters))
    wait_until(lambda: all(total(each) >= 2 * RECORDS for each in clusters.values()), "all everywhere")
    wait_until(lambda: is_copied(running), "nothing is left to copy")
    assert_everything_once_everywhere(clusters)
    assert all(route["counts"]["returned_batches_dropped"] > 0 for route in routes_of(running))
    assert running.stop() == 0
