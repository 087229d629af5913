"""What all parts of the administration share: requests to the controller and to other nodes, tried again
within a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.wire.message import Request, ResponseType

Results = dict[str, ProtocolError | None]
"""By name: None where it was done, else why not."""

_Result = TypeVar("_Result")


class AdminRequests:
    """Base of the administration's parts."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        """`timeout_ms` bounds each operation, attempts and all."""
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def _retried(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        """The attempt's result; metadata is refreshed before each further one.

        Raises the error of the last.
        """
        retries = self._cluster.retries(self._timeout_ms)
        while True:
            try:
                return await attempt()
            except BrokerError as error:
                await retries.pause(error)
                await self._refresh_quietly()

    async def _refresh_quietly(self) -> None:
        """A failure here shows in the next attempt."""
        try:
            await self._cluster.refresh([])
        except BrokerError:
            return

    async def _ask_controller(
        self,
        build: Callable[[Connection], Request[ResponseType]],
        codes: Callable[[ResponseType], list[int]],
    ) -> ResponseType:
        """The controller's answer to what `build` makes for it; asked again when it says that it is none."""

        async def attempt() -> ResponseType:
            connection = await self._cluster.controller()
            timeout_ms = self._timeout_ms + self._cluster.settings.request_timeout_ms
            response = await connection.request(build(connection), timeout_ms=timeout_ms)
            if ErrorCode.NOT_CONTROLLER in codes(response):
                raise ProtocolError(ErrorCode.NOT_CONTROLLER)
            return response

        return await self._retried(attempt)


def error_of(code: int, message: str | None, context: str) -> ProtocolError | None:
    """The error that a code and a message stand for; None for success."""
    if not code:
        return None
    known = ErrorCode.of(code)
    return ProtocolError(known, f"{context}: {message or known.meaning}")
