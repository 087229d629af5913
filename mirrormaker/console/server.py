"""The daemon's HTTP port: `GET` shows, `POST` changes; JSON unless said otherwise.

    GET  /health             200 as long as the process serves; {"ready": ...} beside
    GET  /health/ready       503 while a route has not come to work, or failed
    GET  /status             as `mirrormaker status --output json`: asks the clusters; ?route=NAME &topic=T
    GET  /metrics            for Prometheus, as text: what this process knows
    GET  /topology           the text in force; its digest is the ETag
    POST /topology           puts a text in force and into the file; If-Match: ETag as a condition
    POST /reload             puts the file as it is in force
    POST /routes/NAME/pause  ?topic=T (several times) &reason=TEXT
    POST /routes/NAME/resume ?topic=T &partition=N
    GET  /failover-groups/NAME           ?to=home|standby &tail=copy|report: what that would mean
    POST /failover-groups/NAME/failover  ?force=true &tail=copy|report &timeout=SECONDS; then it is done
    POST /failover-groups/NAME/failback  the same, to the home
    POST /routes/NAME/seek   ?to=earliest|latest|TIME|OFFSET &topic=T &partition=N; while it pauses

An error is {"problems": [...]}; a parameter that a request does not have is one. Runs on the daemon's event
loop; who may do what is decided in `access`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from broker.clock import SystemClock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from broker.types import HostPort
from mirrormaker.console.access import Access
from mirrormaker.console.failover import FailoverResource
from mirrormaker.console.metrics import metrics_text
from mirrormaker.console.queries import check_query
from mirrormaker.daemon import Daemon
from mirrormaker.failover.sides import FailoverError
from mirrormaker.reconcile.control import Pause, Resumption, resumption_record
from mirrormaker.reconcile.control_records import this_user
from mirrormaker.reconcile.halts import Release
from mirrormaker.reconcile.live_topology import OutdatedTopologyError
from mirrormaker.reconcile.pauses import (
    find_pause,
    find_route,
    name_resumed,
    pause_records,
    require_resumable,
    resume_records,
)
from mirrormaker.report import render_json
from mirrormaker.seeking import RouteBusyError, parse_destination, seek
from mirrormaker.status import read_status
from mirrormaker.topology.model import RouteSpec

TOPOLOGY_BYTES_MAX = 16 << 20
SHUTDOWN_SECONDS = 1.0
"""How long requests under way may take once the daemon has ended."""
_PARTITION_DIGITS_MAX = 10
_SHOWN_MAX = 50
"""Characters of what was asked for, in an answer that refuses it."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_log = logger("console")


@asynccontextmanager
async def serving(daemon: Daemon, address: HostPort, token: str | None) -> AsyncIterator[HostPort]:
    """Serve `daemon` from entry to exit; the address with the port that is really bound.

    Raises ConfigurationError when it cannot be bound.
    """
    application = web.Application(
        middlewares=[_tell_problems, _guarding(Access(host=address.host, token=token))],
        client_max_size=TOPOLOGY_BYTES_MAX,
    )
    application.add_routes(DaemonResource(daemon).routes())
    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, address.host, address.port)
        try:
            await site.start()
        except (OSError, OverflowError) as error:
            raise ConfigurationError([f"--http {address}: cannot listen there: {error}"]) from error
        bound = HostPort(address.host, runner.addresses[0][1])
        _log.info("console_serving", address=str(bound))
        yield bound
    finally:
        await runner.cleanup()


class DaemonResource:
    """Answers for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._clock = SystemClock()

    def routes(self) -> list[web.RouteDef]:
        """The table of what is served."""
        return [
            web.get("/health", self.health),
            web.get("/health/ready", self.readiness),
            web.get("/status", self.status),
            web.get("/metrics", self.metrics),
            web.get("/topology", self.topology),
            web.post("/topology", self.replace_topology),
            web.post("/reload", self.reload),
            web.post("/routes/{name}/pause", self.pause),
            web.post("/routes/{name}/resume", self.resume),
            web.post("/routes/{name}/seek", self.seek),
            *FailoverResource(self._daemon).routes(),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """That this is answered at all is the news."""
        return web.json_response({"live": True, "ready": self._daemon.is_ready})

    async def readiness(self, request: web.Request) -> web.Response:
        """For those who send traffic, or wait for the end of a deployment."""
        is_ready = self._daemon.is_ready
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    async def status(self, request: web.Request) -> web.Response:
        """Positions and ends are asked of the clusters, the rest is known here."""
        check_query(request.query, once={"route"}, several={"topic"})
        daemon, name, topics = self._daemon, request.query.get("route"), request.query.getall("topic", [])
        if topics and name is None:
            raise ConfigurationError(["topic needs a route"])
        routes = None if name is None else [find_route(daemon.topology, name, topics)]
        status = await read_status(
            daemon.topology, self._clock, daemon.describe(), routes=routes, topics=topics
        )
        return web.json_response(render_json(status))

    async def metrics(self, request: web.Request) -> web.Response:
        """In Prometheus' text format."""
        text = await asyncio.to_thread(metrics_text, self._daemon.describe())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def topology(self, request: web.Request) -> web.Response:
        """The text in force, which the file need not hold just now."""
        check_query(request.query)
        source = self._daemon.live.loaded.source
        return web.Response(
            text=source.text, content_type="application/yaml", headers={"ETag": f'"{source.digest}"'}
        )

    async def replace_topology(self, request: web.Request) -> web.Response:
        """The body is the whole topology."""
        check_query(request.query)
        try:
            text = (await request.read()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError([f"the body is not UTF-8 text: {error.reason}"]) from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise ConfigurationError([f"the body cannot be read: {error}"]) from error
        expected = request.headers.get("If-Match", "*").strip()  # any: there always is one
        steps = await self._daemon.live.replace(
            text, expected_digest=None if expected == "*" else expected.strip('"')
        )
        return self._applied(steps.describe())

    async def reload(self, request: web.Request) -> web.Response:
        """As SIGHUP, with an answer."""
        check_query(request.query)
        return self._applied((await self._daemon.live.reload()).describe())

    async def pause(self, request: web.Request) -> web.Response:
        """Every process of the route heeds it, wherever it runs."""
        check_query(request.query, once={"reason"}, several={"topic"})
        route, topics = self._asked_route(request)
        wish = Pause(
            at_ms=self._clock.now_ms(),
            by=f"{this_user()} by HTTP from {request.remote}",
            reason=request.query.get("reason"),
        )
        records = pause_records(route.name, topics, wish)
        await self._daemon.board(route).put(records)
        return web.json_response({"paused": [key["topic"] for key, _ in records]})

    async def resume(self, request: web.Request) -> web.Response:
        """Takes pauses back; `held` says what keeps from going on all the same."""
        check_query(request.query, once={"partition"}, several={"topic"})
        route, topics = self._asked_route(request)
        partition = _asked_partition(request)
        board = self._daemon.board(route)
        resumption = Resumption(
            release=Release(at_ms=self._clock.now_ms(), by=f"{this_user()} by HTTP from {request.remote}"),
            topics=frozenset(topics),
            partition=partition,
        )
        require_resumable(route.name, await board.wishes(route.name), resumption)
        await board.put([resumption_record(route.name, resumption)])
        wishes = await board.wishes(route.name)
        records = resume_records(route.name, wishes, resumption)
        await board.put(records)
        held = find_pause(route.name, wishes, resumption)
        resumed = [name_resumed(key) for key, _ in records]
        return web.json_response({"resumed": resumed} | ({} if held is None else {"held": held}))

    async def seek(self, request: web.Request) -> web.Response:
        """Refused while the route is at work anywhere."""
        check_query(request.query, once={"to", "partition"}, several={"topic"})
        route, topics = self._asked_route(request)
        try:
            destination = parse_destination(request.query.get("to", ""))
            partition = _asked_partition(request)
        except ValueError as error:
            raise ConfigurationError([str(error)]) from error
        moved = await seek(
            self._daemon.topology, route.name, topics, destination, partition, may_have_ended=False
        )
        return web.json_response(
            {
                "positions": [
                    {"topic": at.topic, "partition": at.partition, "offset": offset}
                    for at, offset in moved.items()
                ]
            }
        )

    def _asked_route(self, request: web.Request) -> tuple[RouteSpec, list[str]]:
        """The route that the path names, and the topics of the query."""
        name, topics = request.match_info["name"], request.query.getall("topic", [])
        if all(route.name != name for route in self._daemon.topology.routes):
            raise web.HTTPNotFound(reason="there is no such route")
        return find_route(self._daemon.topology, name, topics), topics

    def _applied(self, steps: dict[str, list[str]]) -> web.Response:
        loaded = self._daemon.live.loaded
        told: dict[str, Any] = {
            "generation": loaded.topology.generation,
            "digest": loaded.source.digest,
            "routes": steps,
        }
        return web.json_response(told, headers={"ETag": f'"{loaded.source.digest}"'})


def _asked_partition(request: web.Request) -> int | None:
    """Raises ConfigurationError for what is no number of a partition."""
    text = request.query.get("partition")
    if text is None:
        return None
    if not text.isdecimal() or len(text) > _PARTITION_DIGITS_MAX:
        raise ConfigurationError([f"partition: {text[:_SHOWN_MAX]!r} is not the number of one"])
    return int(text)


def _guarding(access: Access) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = access.refusal(request.method, request.headers)
        if refusal is None:
            return await handler(request)
        _log.warning("request_refused", path=request.path, peer=request.remote, reason=refusal.reason)
        return _problems(refusal.status, [refusal.reason], refusal.headers)

    return guard


@web.middleware
async def _tell_problems(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Errors of the daemon and of aiohttp, in the one form."""
    try:
        return await handler(request)
    except ConfigurationError as error:
        return _problems(400, error.problems)
    except OutdatedTopologyError as error:
        return _problems(412, [str(error)])
    except (RouteBusyError, FailoverError) as error:
        return _problems(409, [str(error)])
    except BrokerError as error:
        return _problems(503, [str(error)])
    except web.HTTPException as error:
        headers = {name: value for name, value in error.headers.items() if name != "Content-Type"}
        return _problems(error.status, [error.reason], headers)
    except Exception as error:  # noqa: BLE001 the request has failed, and nothing else
        _log.error("request_failed", method=request.method, path=request.path, exc_info=True)
        return _problems(500, [f"{type(error).__name__}: see the daemon's log"])


def _problems(status: int, problems: list[str], headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"problems": problems}, status=status, headers=headers)
