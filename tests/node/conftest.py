"""A node that several tests share, for what leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.types import HostPort
from tests.conftest import cluster_spec, forked
from tests.node.raw_client import RawClient, connected
from tests.node.transactions import UNVERIFIED


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One real node for a module's tests; each works on topics of its own."""
    settings = {"socket.request.max.bytes": 2 << 20, "message.max.bytes": 100_000, **UNVERIFIED}
    spec = cluster_spec(zookeeper, tmp_path_factory.mktemp("node"), "shared", settings=settings)
    with EmbeddedCluster(spec, forked) as running:
        yield running


@pytest.fixture
def address(node: EmbeddedCluster) -> HostPort:
    return node.bootstrap[0]


@pytest.fixture
def client(address: HostPort) -> Iterator[RawClient]:
    """A connection to the shared node."""
    with connected(address) as raw:
        yield raw


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid4().hex[:12]}"
