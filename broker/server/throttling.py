"""One request of a client that has quotas: what it uses is counted, and how long its connection is to rest.

As Kafka does since KIP-219, an answer of any version leaves at once with `throttle_time_ms` in it, and
nothing more of the connection is looked at for that long. A fetch that would exceed its quota is answered
without records, which are not counted then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from broker.server.fetch_sessions import is_from_node
from broker.server.quotas import ClientLimits, Quotas
from broker.wire.message import Request
from broker.wire.messages.create_partitions import CreatePartitionsRequest
from broker.wire.messages.create_topics import CreateTopicsRequest
from broker.wire.messages.delete_topics import DeleteTopicsRequest
from broker.wire.messages.fetch import FetchRequest
from broker.wire.messages.produce import ProduceRequest

T = TypeVar("T")

_STRICT_FROM: dict[type[Request[Any]], int] = {
    CreateTopicsRequest: 6,
    CreatePartitionsRequest: 3,
    DeleteTopicsRequest: 5,
}
"""APIs that change topics, and their first versions whose clients understand THROTTLING_QUOTA_EXCEEDED."""


class Throttle:
    """The accounts of one request."""

    __slots__ = ("_client", "_is_strict", "_limits", "_mutates", "_quotas", "_spent_ns", "throttle_ms")

    def __init__(
        self,
        quotas: Quotas,
        limits: ClientLimits,
        client: tuple[str, str],
        request: Request[Any],
        *,
        version: int,
        size: int,
    ) -> None:
        self.throttle_ms = 0
        """How long the client has to wait, as far as is known."""
        self._quotas = quotas
        self._limits = limits
        self._client = client
        self._spent_ns = 0
        strict_from = _STRICT_FROM.get(type(request))
        self._mutates = strict_from is not None
        self._is_strict = strict_from is not None and version >= strict_from
        if isinstance(request, ProduceRequest):
            self._produced(size)
        elif isinstance(request, FetchRequest):
            self._bound_fetch(request)

    def _produced(self, size: int) -> None:
        if self._limits.produce is not None:
            self._wait(self._quotas.record_bytes(self._limits.produce, size))

    def _bound_fetch(self, request: FetchRequest) -> None:
        """A response that no window has room for would have to wait for ever."""
        if self._limits.fetch is not None:
            request.max_bytes = min(request.max_bytes, self._quotas.fetch_size_max(self._limits.fetch))
            request.min_bytes = min(request.min_bytes, request.max_bytes)

    def admits_fetch(self, size: int) -> bool:
        """Whether so many bytes of records may be sent now; then they are counted."""
        if self._limits.fetch is None:
            return True
        throttle_ms = self._quotas.record_fetch(self._limits.fetch, size)
        self._wait(throttle_ms)
        return not throttle_ms

    def spend_mutations(self, count: int) -> None:
        """Count partitions that are about to be made or removed.

        Raises ProtocolError THROTTLING_QUOTA_EXCEEDED.
        """
        self._quotas.spend_mutations(*self._client, count, is_strict=self._is_strict)

    def timed_call(self, call: Callable[[], T]) -> T:
        """Make a call, and count the time that it takes."""
        started = self._quotas.nanoseconds()
        try:
            return call()
        finally:
            self._spent_ns += self._quotas.nanoseconds() - started

    def timed(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await `work`, and count the time in which it runs, not that in which it waits."""
        return _TimedWork(self, work)

    def finish(self) -> int:
        """How long the connection is to rest, in ms, now that the request is done."""
        if self._limits.request is not None:
            self._wait(self._quotas.record_time(self._limits.request, self._spent_ns))
        if self._mutates and self._limits.mutations is not None:
            self._wait(self._quotas.mutations_throttle_ms(self._limits.mutations))
        return self.throttle_ms

    def _wait(self, throttle_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, throttle_ms)


class _TimedWork(Generator[Any, Any, T]):
    """A coroutine each step of which is timed, whether it goes on with what it waited for or with its
    failure.
    """

    __slots__ = ("_throttle", "_work")

    def __init__(self, throttle: Throttle, work: Coroutine[Any, Any, T]) -> None:
        self._throttle = throttle
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def send(self, value: Any) -> Any:
        return self._throttle.timed_call(partial(self._work.send, value))

    def throw(self, *error: Any) -> Any:
        return self._throttle.timed_call(partial(self._work.throw, *error))


def throttle_of(
    quotas: Quotas, client: tuple[str, str], request: Request[Any], *, version: int, size: int
) -> Throttle | None:
    """The accounts of a request of `size` bytes by a user and client id; None where no quota applies.

    What nodes fetch from each other is not limited.
    """
    if isinstance(request, FetchRequest) and is_from_node(request):
        return None
    limits = quotas.of(*client)
    if not limits.any:
        return None
    return Throttle(quotas, limits, client, request, version=version, size=size)
