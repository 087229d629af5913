"""From a frame to its answer: header, version, authorisation, handler, response.

The table of APIs in `routes` is all that decides what this node serves; ApiVersions answers from it. A
handler returns its response (on the hottest path: encoded), None for no answer at all, or a coroutine of
either where it has to wait; a `LaterAnswer` where the requests behind need not. Bytes that are no request of
a served version close the connection, but for ApiVersions, whose too new versions get the oldest layout as
an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from broker.errors import ErrorCode, ProtocolError
from broker.server.access import Rule, require_whole
from broker.server.connection import Answer, Connection
from broker.server.later_answers import LaterAnswer
from broker.server.naming import Served
from broker.server.produce_answers import with_throttle_time
from broker.server.repeated_requests import Repeated
from broker.server.request import ConnectionClosedError, Encoded, RequestContext
from broker.server.security import Operation, ResourceKind
from broker.server.throttling import Throttle, throttle_of
from broker.telemetry import logger
from broker.wire.header import RequestHeader, decode_request_header, encode_response
from broker.wire.message import Message, Request
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.produce import ProduceRequest
from broker.wire.registry import Api, api_of

log = logger("dispatch")

Reply: TypeAlias = Message | Encoded | LaterAnswer | Coroutine[Any, Any, Message | None] | None
Handler: TypeAlias = Callable[[Any, RequestContext, Any], Reply]
"""Given what it works with (of a node: its `Services`), who asks, and the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One served API. `refuse` builds the answer for a request that is refused as a whole;

    None: the connection is closed.
    """

    request: type[Request[Any]]
    rule: Rule
    """What its requests must be allowed."""
    handle: Handler
    refuse: Callable[[Any, ProtocolError, int], Message] | None = None
    version_min: int | None = None
    """Oldest version served; None: the oldest there are tables for."""
    version_max: int | None = None
    """Newest version served; None: the newest there are tables for."""

    @property
    def oldest(self) -> int:
        return self.request.min_version if self.version_min is None else self.version_min

    @property
    def newest(self) -> int:
        return self.request.max_version if self.version_max is None else self.version_max


_CLUSTER_ACTION = (Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)


class _Entry(NamedTuple):
    """A route with what dispatch needs of it."""

    route: Route
    api: Api[Any]
    oldest: int
    newest: int
    is_exempt: bool
    """Whether quotas leave it alone: what nodes must do for the cluster does not wait."""


class Dispatcher:
    """Answers frames by the table it was given; one for all connections of a node."""

    def __init__(self, routes: Sequence[Route], services: Served) -> None:
        self._services = services
        self._entries: Mapping[int, _Entry] = {
            route.request.api_key: _Entry(
                route, api_of(route.request), route.oldest, route.newest, _CLUSTER_ACTION in route.rule.needs
            )
            for route in routes
        }

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer one frame. Raises WireError or ConnectionClosedError when its connection is to be closed."""
        repeated = connection.repeated_requests.match(frame)
        if repeated is not None:
            return self._handle_produce(repeated, len(frame))
        header = decode_request_header(frame)
        entry = self._entries.get(header.api_key)
        if entry is None:
            raise ConnectionClosedError(f"API {header.api_key} is not served")
        if not entry.oldest <= header.api_version <= entry.newest:
            return self._refuse_version(entry.api, header)
        # Bytes may follow the request, as in Kafka: librdkafka appends some to Metadata requests.
        request, _ = entry.route.request.decode_prefix(frame, header.api_version, header.body_position)
        context = RequestContext(connection, header.api_version, header.correlation_id, header.client_id)
        if isinstance(request, ProduceRequest):
            repeated = connection.repeated_requests.learn(frame, context, request)
            if repeated is not None:
                return self._handle_produce(repeated, len(frame))
        return self._handle(entry, context, request, len(frame))

    def _handle_produce(self, repeated: Repeated, size: int) -> Answer | Coroutine[Any, Any, Answer]:
        """The records are let go afterwards: a view that was kept would keep the receive buffer with it."""
        answer = self._handle(self._entries[ProduceRequest.api_key], repeated.context, repeated.request, size)
        repeated.data.records = None
        return answer

    def _handle(
        self, entry: _Entry, context: RequestContext, request: Request[Any], size: int
    ) -> Answer | Coroutine[Any, Any, Answer]:
        quotas = self._services.quotas
        if quotas.in_force and not entry.is_exempt:
            client = (context.session.principal.name, context.client_id or "")
            throttle = throttle_of(quotas, client, request, version=context.api_version, size=size)
            if throttle is not None:
                return self._handle_throttled(entry, context, request, throttle)
        reply = self._reply(entry, context, request)
        if reply is None or isinstance(reply, Encoded | LaterAnswer):
            return reply
        if isinstance(reply, Message):
            return encode_response(reply, entry.api, context.api_version, context.correlation_id)
        return _Waiting(reply, self._await_reply(reply, entry, context, request))

    def _reply(self, entry: _Entry, context: RequestContext, request: Request[Any]) -> Reply:
        try:
            whole = entry.route.rule.whole
            if whole is not None:
                require_whole(self._services, context, whole, request)
            return entry.route.handle(self._services, context, request)
        except ProtocolError as error:
            return _refusal(entry, request, error, context.api_version)

    async def _await_reply(
        self,
        reply: Coroutine[Any, Any, Message | None],
        entry: _Entry,
        context: RequestContext,
        request: Request[Any],
    ) -> Answer:
        try:
            response = await reply
        except ProtocolError as error:
            response = _refusal(entry, request, error, context.api_version)
        if response is None:
            return None
        return encode_response(response, entry.api, context.api_version, context.correlation_id)

    # Clients that have quotas

    def _handle_throttled(
        self, entry: _Entry, context: RequestContext, request: Request[Any], throttle: Throttle
    ) -> Answer | Coroutine[Any, Any, Answer]:
        context.throttle = throttle
        reply = throttle.timed_call(lambda: self._reply(entry, context, request))
        if isinstance(reply, Coroutine):
            return _Waiting(reply, self._await_throttled(reply, entry, context, request, throttle))
        return self._throttled(reply, entry, context, throttle)

    async def _await_throttled(
        self,
        reply: Coroutine[Any, Any, Message | Encoded | None],
        entry: _Entry,
        context: RequestContext,
        request: Request[Any],
        throttle: Throttle,
    ) -> Answer:
        try:
            response = await throttle.timed(reply)
        except ProtocolError as error:
            response = _refusal(entry, request, error, context.api_version)
        return self._throttled(response, entry, context, throttle)

    def _throttled(
        self, reply: Message | Encoded | None, entry: _Entry, context: RequestContext, throttle: Throttle
    ) -> Answer:
        """The answer, which says how long its client has to wait; its connection does so in any case."""
        throttle_ms = throttle.finish()
        if throttle_ms:
            context.session.mute(throttle_ms)
        if reply is None:
            return None
        if isinstance(reply, Encoded):
            return with_throttle_time(reply, context.api_version, throttle_ms)
        if hasattr(reply, "throttle_time_ms"):
            reply.throttle_time_ms = throttle_ms
        return encode_response(reply, entry.api, context.api_version, context.correlation_id)

    def _refuse_version(self, api: Api[Any], header: RequestHeader) -> Answer:
        if api.request is not ApiVersionsRequest:
            raise ConnectionClosedError(f"version {header.api_version} of {api.name} is not served")
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._services.api_versions
        )
        return encode_response(response, api, 0, header.correlation_id)


class _Waiting(Coroutine[Any, Any, Answer]):
    """An answer that has to wait. Closing it closes its handler's work too, even if neither has begun."""

    __slots__ = ("_answer", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], answer: Coroutine[Any, Any, Answer]) -> None:
        self._work = work
        self._answer = answer

    def send(self, value: Any) -> Any:
        return self._answer.send(value)

    def throw(self, *error: Any) -> Any:
        return self._answer.throw(*error)

    def close(self) -> None:
        self._answer.close()
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Answer]:
        return self._answer.__await__()


def _refusal(entry: _Entry, request: Request[Any], error: ProtocolError, version: int) -> Message:
    """The answer to a request that failed as a whole."""
    if entry.route.refuse is not None:
        return entry.route.refuse(request, error, version)
    if hasattr(entry.api.response, "error_code"):
        response: Message = entry.api.response(error_code=error.code)
        return response
    raise ConnectionClosedError(f"{entry.api.name} failed: {error}")
