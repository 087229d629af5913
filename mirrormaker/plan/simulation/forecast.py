"""Runs a network through time and says what came of every route and place. Pure.

Rates are constant from one event to the next: a limit or an hour changes, a lag has gone. Parts of the mesh
that share nothing are run apart, so that the work grows with their sizes and not with that of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrormaker.plan.simulation.backlog import Backlog
from mirrormaker.plan.simulation.limits import HOUR_MS, UNLIMITED, changes_of
from mirrormaker.plan.simulation.network import Network, Place, Stream, build_network
from mirrormaker.plan.simulation.shares import Flow, fair_shares
from mirrormaker.topology.model import ClusterName, RouteName, Topology

STEP_MS_MIN = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteForecast:
    """One route. Bytes are per second where the name says so; what has no bound is None."""

    route: RouteName
    source: ClusterName
    destination: ClusterName
    partitions: int
    produced_bytes_per_second: float
    copied_bytes_per_second: float
    """On average."""
    peak_bytes_per_second: float
    ceiling_bytes_per_second: float | None
    """What the round trip lets pass."""
    lag_bytes_max: float
    lag_seconds_max: float
    lag_max_at_seconds: float
    """When that was, from the start on."""
    catch_up_seconds_max: float
    """The longest time from where a lag began to shrink to its end."""
    behind_bytes: float
    """At the end."""
    behind_seconds: float
    too_late_at_seconds: float | None
    """When records would first be deleted at the source before they are copied; None: never."""
    keeps_objective: bool | None
    """Whether the lag stayed within `objectives.lag_seconds`; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceForecast:
    """A link, or an end of a cluster."""

    name: str
    bytes_per_second: float | None
    """Its size, on average; None without a limit."""
    copied_bytes_per_second: float
    peak_bytes_per_second: float

    @property
    def used(self) -> float | None:
        """Part of its size that is used."""
        if not self.bytes_per_second:
            return None
        return self.copied_bytes_per_second / self.bytes_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """All of a mesh, over `span_ms`."""

    span_ms: int
    routes: tuple[RouteForecast, ...]
    places: tuple[PlaceForecast, ...]


def simulate(topology: Topology, span_ms: int) -> Forecast:
    """What becomes of the topology's routes in `span_ms` from a Monday's midnight on."""
    network = build_network(topology)
    usage = [_Usage() for _ in network.places]
    done: dict[RouteName, RouteForecast] = {}
    for part in network.parts():
        for forecast in _run(part, network, span_ms, usage):
            done[forecast.route] = forecast
    return Forecast(
        span_ms=span_ms,
        routes=tuple(done[stream.route.name] for stream in network.streams),
        places=tuple(
            usage[number].forecast(place.name, span_ms) for number, place in enumerate(network.places)
        ),
    )


@dataclass(slots=True)
class _Usage:
    """What passed through a place."""

    room: float = 0.0
    passed: float = 0.0
    peak: float = 0.0

    def add(self, size: float, rate: float, span_ms: float) -> None:
        self.room += size * span_ms / 1000
        self.passed += rate * span_ms / 1000
        self.peak = max(self.peak, rate)

    def forecast(self, name: str, span_ms: int) -> PlaceForecast:
        seconds = span_ms / 1000
        return PlaceForecast(
            name=name,
            bytes_per_second=_bound(self.room / seconds),
            copied_bytes_per_second=self.passed / seconds,
            peak_bytes_per_second=self.peak,
        )


def _run(
    streams: Sequence[Stream], network: Network, span_ms: int, usage: Sequence[_Usage]
) -> list[RouteForecast]:
    places = {number: network.places[number] for stream in streams for number in stream.places}
    events = _events(streams, list(places.values()), span_ms)
    backlogs = [_backlog(stream) for stream in streams]
    now_ms = 0.0
    for event_ms in events:
        arriving = [stream.arriving(now_ms) for stream in streams]
        allowed = [stream.allowed(now_ms) for stream in streams]
        sizes = {number: place.size_at(now_ms) for number, place in places.items()}
        while now_ms < event_ms:
            wanted = [
                _wanted(stream, backlog, coming, most)
                for stream, backlog, coming, most in zip(streams, backlogs, arriving, allowed, strict=True)
            ]
            flows = [
                Flow(want, stream.route.resources.priority, stream.places)
                for stream, want in zip(streams, wanted, strict=True)
            ]
            leaving = fair_shares(flows, sizes)
            turns = (
                backlog.next_turn_ms(coming, going)
                for backlog, coming, going in zip(backlogs, arriving, leaving, strict=True)
            )
            step_ms = min(event_ms - now_ms, max(min(turns), STEP_MS_MIN))
            for backlog, coming, going in zip(backlogs, arriving, leaving, strict=True):
                backlog.advance(step_ms, coming, going)
            _note(streams, leaving, sizes, usage, step_ms)
            now_ms = event_ms if event_ms - now_ms - step_ms < STEP_MS_MIN else now_ms + step_ms
    return [_forecast(stream, backlog, span_ms) for stream, backlog in zip(streams, backlogs, strict=True)]


def _events(streams: Sequence[Stream], places: Sequence[Place], span_ms: int) -> list[int]:
    limits = [stream.limit for stream in streams] + [limit for place in places for limit in place.limits]
    hours = (
        range(HOUR_MS, span_ms, HOUR_MS) if any(stream.route.simulate.by_hour for stream in streams) else ()
    )
    return sorted({*changes_of(limits, span_ms), *hours, span_ms})


def _backlog(stream: Stream) -> Backlog:
    assumed = stream.route.simulate
    retention_ms = UNLIMITED if assumed.retention_ms is None else float(assumed.retention_ms)
    old_ms = UNLIMITED
    if stream.route.resources.catch_up_bytes_per_second is not None:
        old_ms = float(stream.route.objectives.old_after_ms)
    return Backlog.begun(assumed.behind_bytes, assumed.bytes_per_second, retention_ms, old_ms)


def _wanted(stream: Stream, backlog: Backlog, arriving: float, allowed: float) -> float:
    """All that is allowed while anything lags, within what may be spent on old records."""
    if backlog.is_empty:
        return min(arriving, allowed)
    budget = stream.route.resources.catch_up_bytes_per_second
    return min(allowed, budget) if budget is not None and backlog.is_old else allowed


def _note(
    streams: Sequence[Stream],
    leaving: Sequence[float],
    sizes: dict[int, float],
    usage: Sequence[_Usage],
    span_ms: float,
) -> None:
    passing = dict.fromkeys(sizes, 0.0)
    for stream, rate in zip(streams, leaving, strict=True):
        for place in stream.places:
            passing[place] += rate
    for place, rate in passing.items():
        usage[place].add(sizes[place], rate, span_ms)


def _forecast(stream: Stream, backlog: Backlog, span_ms: int) -> RouteForecast:
    route, worst, seconds = stream.route, backlog.worst, span_ms / 1000
    objective_ms = None if route.objectives.lag_seconds is None else route.objectives.lag_seconds * 1000
    return RouteForecast(
        route=route.name,
        source=route.source,
        destination=route.destination,
        partitions=route.simulate.partitions,
        produced_bytes_per_second=backlog.produced / seconds,
        copied_bytes_per_second=(backlog.copied + route.simulate.behind_bytes) / seconds,
        peak_bytes_per_second=worst.peak,
        ceiling_bytes_per_second=_bound(stream.ceiling),
        lag_bytes_max=worst.lag_bytes,
        lag_seconds_max=worst.lag_ms / 1000,
        lag_max_at_seconds=worst.lag_at_ms / 1000,
        catch_up_seconds_max=worst.catch_up_ms / 1000,
        behind_bytes=backlog.bytes,
        behind_seconds=backlog.lag_ms / 1000,
        too_late_at_seconds=None if worst.too_late_at_ms is None else worst.too_late_at_ms / 1000,
        keeps_objective=None if objective_ms is None else worst.lag_ms <= objective_ms,
    )


def _bound(rate: float) -> float | None:
    return None if rate == UNLIMITED else rate
