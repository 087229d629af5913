"""Requests that are well-formed and mean anything at all: a node answers them, and lives on."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker.client.connection import Connection, ConnectionSettings
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import RequestTimedOutError
from broker.server.routes import ROUTES
from broker.wire.message import Request
from broker.wire.messages.produce import ProduceRequest
from broker.wire.schema import Struct
from tests.conformance.cases import BETWEEN_NODES
from tests.conformance.scene import Place, prepare
from tests.conftest import cluster_spec, forked
from tests.wire.samples import sample

REQUESTS_PER_VERSION = 10
ANSWER_TIMEOUT_MS = 500
AT_ONCE = 50
ASKED_FOR = [route for route in ROUTES if route.request not in BETWEEN_NODES]
"""What anybody may send; orders between nodes change what a node believes."""


@pytest.fixture(scope="module")
def node(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A node that may be spoilt."""
    directory = tmp_path_factory.mktemp("any-request")
    with EmbeddedCluster(cluster_spec(zookeeper, directory, "node"), forked) as cluster:
        yield cluster


@pytest.mark.parametrize("seed", range(2))
def test_no_request_harms_a_node(node: EmbeddedCluster, seed: int) -> None:
    async def send_all() -> None:
        place = await prepare(node.bootstrap[0])
        random = Random(seed)
        requests = [
            (_plausible(sample(route.request, version, random), version, random, place), version)
            for route in ASKED_FOR
            for version in range(route.oldest, route.newest + 1)
            for _ in range(REQUESTS_PER_VERSION)
        ]
        for start in range(0, len(requests), AT_ONCE):
            await asyncio.gather(*(_send(place, *each) for each in requests[start : start + AT_ONCE]))
        await prepare(node.bootstrap[0])

    asyncio.run(send_all())
    assert node.dead_nodes() == {}
    assert list(_errors(node.spec.directory / "node-1.log")) == []


async def _send(place: Place, request: Request[Any], version: int) -> None:
    """Raises ConnectionFailedError for a closed connection and for an answer that is none."""
    settings = ConnectionSettings(request_timeout_ms=ANSWER_TIMEOUT_MS)
    async with await Connection.open(place.address, settings) as connection:
        if isinstance(request, ProduceRequest) and request.acks == 0:
            connection.send_and_forget(request, version)  # and an error closes the connection
            return
        with contextlib.suppress(RequestTimedOutError):  # of what asks to wait
            await connection.request(request, version)


def _plausible(struct: Any, version: int, random: Random, place: Place) -> Any:
    """The same with most names, ids and numbers replaced by such as mean something to the node."""

    def replaced(value: Any) -> Any:
        if isinstance(value, Struct):
            return _plausible(value, version, random, place)
        return value if random.random() < 0.4 else _meaningful(value, random, place)

    for field in type(struct).__fields__:
        if version in field.versions:
            value = getattr(struct, field.name)
            changed = list(map(replaced, value)) if isinstance(value, list) else replaced(value)
            setattr(struct, field.name, changed)
    return struct


def _meaningful(value: Any, random: Random, place: Place) -> Any:
    match value:
        case bool():
            return value
        case int():
            return random.choice((0, 1, 2, -1, 10))
        case str():
            return random.choice((place.shelf, "group", str(place.node_id), "consumer", "retention.ms"))
        case UUID():
            return place.shelf_id
        case _:
            return value


def _errors(log: Path) -> Iterator[str]:
    for line in log.read_text().splitlines():
        if not line.startswith("{") or json.loads(line)["level"] in ("error", "critical"):
            yield line
