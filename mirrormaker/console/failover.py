"""Failover groups by HTTP: what a switch would mean, and the switch itself. See `server` for the paths."""

from __future__ import annotations

from aiohttp import web

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from broker.telemetry import logger
from mirrormaker.console.queries import check_query
from mirrormaker.daemon import Daemon
from mirrormaker.failover.commands import describe_switched, parse_timeout_ms, rehearse_switch, switch_group
from mirrormaker.failover.settling import Terms
from mirrormaker.failover.sides import find_group
from mirrormaker.failover.tail import TailChoice
from mirrormaker.reconcile.switches import Side
from mirrormaker.topology.model import Topology

_log = logger("failover")


class FailoverResource:
    """Answers for one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._clock = SystemClock()

    def routes(self) -> list[web.RouteDef]:
        """The table of what is served."""
        return [
            web.get("/failover-groups/{name}", self.rehearse),
            web.post("/failover-groups/{name}/failover", self.fail_over),
            web.post("/failover-groups/{name}/failback", self.fail_back),
        ]

    async def rehearse(self, request: web.Request) -> web.Response:
        """Nothing is changed."""
        check_query(request.query, once={"to", "force", "tail"})
        try:
            target = Side(request.query.get("to", Side.STANDBY.value))
        except ValueError as error:
            raise ConfigurationError(["to: expected home or standby"]) from error
        topology, name = self._asked_group(request)
        rehearsal = await rehearse_switch(topology, name, target, self._clock, _terms_of(request))
        return web.json_response(rehearsal.describe())

    async def fail_over(self, request: web.Request) -> web.Response:
        """To the standby."""
        return await self._switch(request, Side.STANDBY)

    async def fail_back(self, request: web.Request) -> web.Response:
        """To the home."""
        return await self._switch(request, Side.HOME)

    async def _switch(self, request: web.Request, target: Side) -> web.Response:
        check_query(request.query, once={"force", "tail", "timeout"})
        topology, name = self._asked_group(request)

        def tell(line: str) -> None:
            _log.info("failover_stage", group=name, stage=line)

        done = await switch_group(topology, name, target, _terms_of(request), self._clock, tell)
        return web.json_response(describe_switched(topology, name, done))

    def _asked_group(self, request: web.Request) -> tuple[Topology, str]:
        """The topology in force, and the name of a failover group, or of a route of it, in the path."""
        topology, name = self._daemon.topology, request.match_info["name"]
        try:
            find_group(topology, name)
        except ConfigurationError as error:
            raise web.HTTPNotFound(reason=str(error)) from error
        return topology, name


def _terms_of(request: web.Request) -> Terms:
    """Raises ConfigurationError."""
    force = request.query.get("force", "false")
    if force not in ("true", "false"):
        raise ConfigurationError([f"force: {force!r} is not true or false"])
    timeout = request.query.get("timeout")
    try:
        timeout_ms = Terms().timeout_ms if timeout is None else parse_timeout_ms(timeout)
    except ValueError as error:
        raise ConfigurationError([f"timeout: {error}"]) from error
    return Terms(timeout_ms=timeout_ms, force=force == "true", tail=_tail_of(request))


def _tail_of(request: web.Request) -> TailChoice | None:
    """Raises ConfigurationError."""
    tail = request.query.get("tail")
    try:
        return None if tail is None else TailChoice(tail)
    except ValueError as error:
        raise ConfigurationError([f"tail: {tail!r} is not copy or report"]) from error
