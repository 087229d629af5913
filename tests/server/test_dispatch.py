"""Dispatch by itself: what waits ends with its connection, what is refused has an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from inspect import CORO_CLOSED, getcoroutinestate
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.cluster.client_quotas import Component, EntityType, Quota
from broker.errors import ErrorCode, ProtocolError
from broker.rates import RateWindows
from broker.server.access import ANYONE, on_cluster
from broker.server.connection import Connection
from broker.server.dispatch import Dispatcher, Handler, Route
from broker.server.quotas import Quotas
from broker.server.repeated_requests import RepeatedRequests
from broker.server.request import ConnectionClosedError
from broker.server.security import ANONYMOUS, AllowAll, Operation
from broker.server.services import Services
from broker.types import HostPort
from broker.wire.header import decode_response, encode_request
from broker.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from broker.wire.messages.produce import ProduceRequest
from broker.wire.registry import api_of

API = api_of(DescribeClusterRequest)


class Peer:
    """A connection as dispatch sees it."""

    def __init__(self) -> None:
        self.peer = HostPort("127.0.0.1", 1)
        self.principal = ANONYMOUS
        self.repeated_requests = RepeatedRequests()
        self.muted_ms = 0

    def mute(self, duration_ms: int) -> None:
        self.muted_ms = duration_ms


def dispatcher(handle: Handler, *, quotas: Quotas | None = None, **route: Any) -> Dispatcher:
    """Serves DescribeCluster by a handler of the test's."""
    known = quotas or Quotas(RateWindows(), lambda: 0)
    services = cast(Services, SimpleNamespace(quotas=known, authoriser=AllowAll()))
    routes = (
        Route(**{"request": DescribeClusterRequest, "rule": ANYONE, "handle": handle, **route}),
        Route(request=ProduceRequest, rule=ANYONE, handle=handle),
    )
    return Dispatcher(routes, services)


def ask(serve: Dispatcher, peer: Peer) -> Any:
    frame = b"".join(map(bytes, encode_request(DescribeClusterRequest(), 0, 7, "client")))[4:]
    return serve(cast(Connection, peer), memoryview(frame))


def decoded(answer: Any) -> DescribeClusterResponse:
    _, response = decode_response(API, 0, b"".join(map(bytes, answer))[4:])
    return response


def limited() -> Quotas:
    """Quotas by which every request is too long."""
    nanoseconds = iter(range(0, 10**15, 10**10))
    quotas = Quotas(RateWindows(), lambda: 0, nanoseconds=lambda: next(nanoseconds))
    quotas.table.set((Component(EntityType.CLIENT_ID, None),), {Quota.REQUEST_PERCENTAGE: 1.0})
    quotas.in_force = True
    return quotas


@pytest.mark.parametrize("quotas", [None, limited()], ids=["free", "limited"])
def test_what_was_not_begun_ends_with_its_answer(quotas: Quotas | None) -> None:
    """Else its coroutine would be left over, with a warning, whenever a peer leaves too early."""
    begun: list[Coroutine[Any, Any, DescribeClusterResponse]] = []

    async def later() -> DescribeClusterResponse:
        return DescribeClusterResponse()

    def handle(*_: object) -> Any:
        begun.append(later())
        return begun[0]

    ask(dispatcher(handle, quotas=quotas), Peer()).close()
    assert getcoroutinestate(begun[0]) == CORO_CLOSED


def test_time_is_counted_while_work_runs_and_not_while_it_waits() -> None:
    async def handle(*_: object) -> DescribeClusterResponse:
        for _turn in range(3):
            await asyncio.sleep(0)
        return DescribeClusterResponse()

    async def scenario() -> tuple[Any, Peer]:
        peer = Peer()
        return await ask(dispatcher(handle, quotas=limited()), peer), peer

    answer, peer = asyncio.run(scenario())
    # Each step took 10 s by the test's clock; nothing waits for longer than a window.
    assert decoded(answer).throttle_time_ms == peer.muted_ms == RateWindows().size_ms


def test_a_cancelled_wait_reaches_the_work_of_a_limited_client() -> None:
    ended = asyncio.Event()

    async def handle(*_: object) -> DescribeClusterResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return DescribeClusterResponse()

    async def scenario() -> None:
        task = asyncio.ensure_future(ask(dispatcher(handle, quotas=limited()), Peer()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(scenario())


def test_an_error_is_answered_where_the_answer_has_room_for_it() -> None:
    def handle(*_: object) -> DescribeClusterResponse:
        raise ProtocolError(ErrorCode.NOT_CONTROLLER)

    assert decoded(ask(dispatcher(handle), Peer())).error_code == ErrorCode.NOT_CONTROLLER


def test_a_request_that_is_not_allowed_does_not_reach_its_handler() -> None:
    class DenyAll(AllowAll):
        def allows(self, *_: object) -> bool:
            return False

    def handle(*_: object) -> DescribeClusterResponse:
        raise AssertionError("asked for what is not allowed")

    serve = dispatcher(handle, rule=on_cluster(Operation.ALTER))
    serve._services.authoriser = DenyAll()
    assert decoded(ask(serve, Peer())).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_unserved_version_closes_the_connection() -> None:
    with pytest.raises(ConnectionClosedError, match="version 0 of DescribeCluster"):
        ask(dispatcher(lambda *_: DescribeClusterResponse(), version_min=1), Peer())
