"""One Spark session, and one node with topics for it to read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from mirrormaker.spark.session import local_session
from tests.conftest import cluster_spec, forked


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = local_session("tests", master="local[2]")
        yield session
        session.stop()


@pytest.fixture(scope="module")
def bootstrap(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a node, as the option takes it."""
    with EmbeddedCluster(
        cluster_spec(zookeeper, tmp_path_factory.mktemp("spark"), "aggregate"), forked
    ) as cluster:
        yield str(cluster.bootstrap[0])
