"""Every API in every version that a node advertises: what is valid succeeds, what is not gets the error that
belongs to it, and nothing closes the connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from broker.errors import ErrorCode, WireError
from broker.server.dispatch import Route
from broker.server.routes import ROUTES
from broker.types import HostPort
from broker.wire.framing import FrameReader
from broker.wire.header import decode_response
from broker.wire.message import Request
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.registry import APIS, api_of
from tests.conformance.cases import CASES, Case
from tests.conformance.scene import Place, Scene, prepare
from tests.conftest import cluster_spec, forked

TIMEOUT_SECONDS = 30
CORRELATION_ID = 5
NO_CLIENT_ID = b"\xff\xff"
TORN_BODY = b"\x7f"
NEWEST = {route.request.api_key: route.newest for route in ROUTES}
PLAYED = [(case, version) for case in CASES for version in case.versions(NEWEST[case.request.api_key])]


@pytest.fixture(scope="module")
def place(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A node whose groups wait for nobody, with a topic that has records."""
    directory = tmp_path_factory.mktemp("every-version")
    with EmbeddedCluster(cluster_spec(zookeeper, directory, "node"), forked) as cluster:
        yield asyncio.run(prepare(cluster.bootstrap[0]))


@pytest.fixture(autouse=True)
def _leaks_of_foreign_clients_are_not_ours() -> None:
    """There are none here, and looking for them takes longer than the tests do."""


@pytest.mark.parametrize(
    ("case", "version"),
    PLAYED,
    ids=[f"{api_of(case.request).name}-{version}-{case.play.__name__}" for case, version in PLAYED],
)
def test_every_version_has_the_outcome_it_should(place: Place, case: Case, version: int) -> None:
    async def play() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS), await Connection.open(place.address) as connection:
            await case.play(Scene(place=place, connection=connection), version)
            assert not connection.closed

    asyncio.run(play())


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: api_of(route.request).name)
def test_every_advertised_version_has_a_case(route: Route) -> None:
    played = {version for case, version in PLAYED if case.request is route.request}
    assert played == set(range(route.oldest, route.newest + 1))


def test_a_node_advertises_what_its_routes_serve(place: Place) -> None:
    async def advertised() -> dict[int, tuple[int, int]]:
        async with await Connection.open(place.address) as connection:
            response = await connection.request(
                ApiVersionsRequest(client_software_name="tests", client_software_version="1")
            )
            return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    served = {route.request.api_key: (route.oldest, route.newest) for route in ROUTES}
    assert asyncio.run(advertised()) == served


# What no client of ours would send


def _exchange(address: HostPort, request: bytes) -> bytes:
    """One framed request; its answer without the size, nothing when the connection was closed instead."""
    frames = FrameReader(1 << 20)
    with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        while data := connection.recv(1 << 16):
            for frame in frames.feed(data):
                return bytes(frame)
    return b""


def _header(api_key: int, version: int) -> bytes:
    """A request header without a client id; with (empty) tagged fields where there are any."""
    api = APIS.get(api_key)
    header = struct.pack(">hhi", api_key, version, CORRELATION_ID)
    match api.request_header_version(version) if api is not None else 1:
        case 0:
            return header
        case 1:
            return header + NO_CLIENT_ID
        case _:
            return header + NO_CLIENT_ID + b"\0"


def _answers(address: HostPort) -> bool:
    return bool(_exchange(address, _header(ApiVersionsRequest.api_key, 0)))


@pytest.mark.parametrize("version", [ApiVersionsRequest.max_version + 1, 100, 0x7FFF])
def test_a_too_new_api_versions_is_answered_in_the_oldest_layout(place: Place, version: int) -> None:
    request = _header(ApiVersionsRequest.api_key, version) + b"\x02x\x02y\0"
    frame = _exchange(place.address, request)
    correlation_id, response = decode_response(api_of(ApiVersionsRequest), 0, frame)
    assert isinstance(response, ApiVersionsResponse)
    assert (correlation_id, response.error_code) == (CORRELATION_ID, ErrorCode.UNSUPPORTED_VERSION)
    own = next(api for api in response.api_keys if api.api_key == ApiVersionsRequest.api_key)
    assert (own.min_version, own.max_version) == (0, ApiVersionsRequest.max_version)


@pytest.mark.parametrize("api_key", [-1, 25000, 0x7FFF, *sorted(APIS.keys() - NEWEST.keys())])
def test_an_api_that_is_not_served_closes_its_connection_alone(place: Place, api_key: int) -> None:
    assert _exchange(place.address, _header(api_key, 0)) == b""
    assert _answers(place.address)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: api_of(route.request).name)
@pytest.mark.parametrize("beyond", [1, 50])
def test_a_version_that_is_not_served_closes_its_connection_alone(
    place: Place, route: Route, beyond: int
) -> None:
    if route.request is ApiVersionsRequest:
        return
    request = _header(route.request.api_key, route.newest + beyond) + b"\0" * 40
    assert _exchange(place.address, request) == b""
    assert _answers(place.address)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: api_of(route.request).name)
def test_a_torn_request_closes_its_connection_alone(place: Place, route: Route) -> None:
    for version in range(route.oldest, route.newest + 1):
        if _is_readable(route.request, version, TORN_BODY):
            continue  # a request without fields
        assert _exchange(place.address, _header(route.request.api_key, version) + TORN_BODY) == b""
    assert _answers(place.address)


def _is_readable(request: type[Request[Any]], version: int, body: bytes) -> bool:
    try:
        request.decode_prefix(body, version)
    except WireError:
        return False
    return True


def test_a_negative_version_closes_its_connection_alone(place: Place) -> None:
    assert _exchange(place.address, _header(3, -1) + b"\0" * 8) == b""
    assert _answers(place.address)
