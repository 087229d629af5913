"""What a route's daemons and its administrators tell each other: records of the topic `__mirrormaker_control`
that its destination keeps. Pure.

The topic is compacted; keys and values are JSON objects, so any client can read them:

    {"route": NAME}                                  {"generation", "digest", "daemon", "host", "at_ms"}
    {"route": NAME, "wish": "pause", "topic": T}     {"at_ms", "by", "reason"}; T null: the route as a whole
    {"route": NAME, "wish": "resume"}                {"at_ms", "by", "topics", "partition"}: the last one
    {"route": NAME, "halt": {...}}                   a partition that stands by a failure policy: see `halts`
    {"route": NAME, "take_over": {"topic": T}}       a topic there that it may add to: see `take_overs`
    {"route": NAME, "positions": "group"}            where its positions are: see `position_places`
    {"failover_group": NAME}                         the last switch of a failover group: see `switches`
    {"pipeline": NAME, ...}                          who runs a pipeline: see `pipelines/run_marks`

The first is the claim of the daemon that runs the newest file; pauses are wishes, which hold until they are
taken back. Each has a key of its own: writers do not undo each other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.trouble import PASSING, WHOLE_ROUTE, Trouble
from mirrormaker.reconcile.halts import Halt, Release, read_halt
from mirrormaker.reconcile.position_places import read_place
from mirrormaker.reconcile.take_overs import TakeOver, read_take_over
from mirrormaker.topology.model import Membership, RouteName, RouteSpec
from mirrormaker.topology.ways import Way

CONTROL_TOPIC = "__mirrormaker_control"
_OF_A_PROCESS = frozenset({"resources", "commit_interval_ms", "refresh_interval_ms", "simulate"})
"""What may differ between the processes of a route."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which file a route is run by, and the daemon that said so first."""

    generation: int
    digest: str
    daemon: str
    host: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A wish that a route, or a topic of it, be left alone."""

    at_ms: int
    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Somebody wants what stands by a failure policy to go on, also what a daemon could not say here yet."""

    release: Release
    topics: frozenset[str] = frozenset()
    """All, where none is named."""
    partition: int | None = None
    """The one of each topic; None for all."""

    def covers(self, source: TopicPartition) -> bool:
        """Whether this is to go on."""
        return (not self.topics or source.topic in self.topics) and self.partition in (None, source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWishes:
    """All that is said of one route."""

    claim: Claim | None = None
    resumption: Resumption | None = None
    """The last one."""
    pause: Pause | None = None
    """Of the route as a whole."""
    topics: Mapping[str, Pause] = field(default_factory=dict)
    """Of single topics of the source."""
    halts: Mapping[TopicPartition, Halt] = field(default_factory=dict)
    """Partitions that stand by a failure policy; those of a topic as a whole have the number -1."""
    take_overs: Mapping[str, TakeOver] = field(default_factory=dict)
    """Of topics of the destination."""
    positions: Membership | None = None
    """Where its positions are, if not at the source's coordinator."""

    def stopping(self, digest: str) -> Trouble | None:
        """What keeps a route of this digest from running."""
        return next((halt.trouble for halt in self.halts.values() if halt.stops(digest)), None)


class Standing(Enum):
    """What a claim that is found means for a daemon."""

    TO_CLAIM = "to claim"
    """Ours is the newer file, or there is none: say so, and run."""
    CLAIMED = "claimed"
    """By this file: run."""
    SUPERSEDED = "superseded"


def standing_of(own: Claim, found: Claim | None, *, worker_since_ms: int | None = None) -> Standing:
    """Whether a daemon that would claim `own` may run the route, or a worker of it that began at
    `worker_since_ms`: the file that its daemon has claimed by since then is on the way to it.
    """
    if found is None or found.generation < own.generation:
        return Standing.TO_CLAIM
    if found.generation > own.generation:
        is_told_soon = worker_since_ms is not None and found.at_ms >= worker_since_ms
        return Standing.CLAIMED if is_told_soon and found.daemon == own.daemon else Standing.SUPERSEDED
    if found.digest == own.digest:
        return Standing.CLAIMED
    return Standing.TO_CLAIM if found.daemon == own.daemon else Standing.SUPERSEDED


class Rest(Enum):
    """Why a route is not run though the file has it."""

    PAUSED = "paused"
    FAILED = "failed"
    """By a failure policy, until somebody resumes it."""
    SUPERSEDED = "superseded"
    STANDING_BY = "standing by"
    """Its failover group is at work in the other direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a daemon is to do about a route."""

    rest: Rest | None = None
    """None: run it."""
    reason: str | None = None
    """Of being superseded or failed."""
    claims: bool = False
    """Say first that this is the file it is run by."""


def judge(
    route: RouteName, own: Claim, wishes: RouteWishes, *, worker_since_ms: int | None = None
) -> Verdict:
    """What `wishes` mean for the daemon that would claim `own`, or its worker: see `standing_of`."""
    standing = standing_of(own, wishes.claim, worker_since_ms=worker_since_ms)
    if standing is Standing.SUPERSEDED:
        assert wishes.claim is not None
        reason = f"route {route!r}: {describe_superseding(own, wishes.claim)}"
        return Verdict(rest=Rest.SUPERSEDED, reason=reason)
    claims = standing is Standing.TO_CLAIM
    if wishes.pause is not None:
        return Verdict(rest=Rest.PAUSED, claims=claims)
    if (trouble := wishes.stopping(own.digest)) is not None:
        return Verdict(rest=Rest.FAILED, reason=describe_failure(trouble), claims=claims)
    return Verdict(claims=claims)


def describe_failure(trouble: Trouble) -> str:
    """Why a route stands as a whole, and what helps."""
    if trouble.source == WHOLE_ROUTE:
        return f"{trouble.kind.value}: {trouble.problem}; `on` says fail: resume it to try again"
    where = trouble.source.topic if trouble.source.partition < 0 else str(trouble.source)
    helps = "try again" if trouble.kind in PASSING else "go on behind that"
    return f"{trouble.kind.value} at {where}: {trouble.problem}; `on` says fail: resume it to {helps}"


def describe_superseding(own: Claim, found: Claim) -> str:
    """Why the route is not run, and what helps."""
    other = f"the daemon {found.daemon} on {found.host}"
    if found.generation > own.generation:
        return (
            f"{other} runs it by generation {found.generation} of the topology, this file is {own.generation}"
        )
    return (
        f"{other} runs it by another file of the same generation {own.generation}: raise 'generation' in the"
        " one that is right"
    )


def digest_of(route: RouteSpec, ways: Iterable[Way] = ()) -> str:
    """The same for routes that do the same in every process, whatever its bounds. `ways`: those that it
    shares the work with.

    Values that a key has anyway do not count: a key that a newer version knows changes nothing.
    """
    said = _without(route, _OF_A_PROCESS)
    if shared := sorted(json.dumps(_said(way), sort_keys=True) for way in ways):
        said["ways"] = shared
    return _digest(said)


def digest_of_spec(spec: Any, *, without: Collection[str]) -> str:
    """The same for parts of a model that are the same but for the fields `without`."""
    return _digest(_without(spec, without))


def _without(spec: Any, fields_left_out: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in _said(spec).items() if name not in fields_left_out}


def _digest(said: Mapping[str, Any]) -> str:
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _said(value: Any) -> Any:
    """A value of the model as JSON, without the fields that have their defaults."""
    match value:
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _said(item) for key, item in value.items()}
        case list() | tuple() | frozenset() | set():
            return [_said(item) for item in (value if isinstance(value, list | tuple) else sorted(value))]
        case _ if is_dataclass(value):
            return {
                entry.name: _said(getattr(value, entry.name))
                for entry in fields(value)
                if getattr(value, entry.name) != _default(entry)
            }
        case _:
            return value


def _default(entry: Any) -> Any:
    if entry.default is not MISSING:
        return entry.default
    return entry.default_factory() if entry.default_factory is not MISSING else MISSING


def read_wishes(records: Iterable[tuple[Document, Document]]) -> dict[RouteName, RouteWishes]:
    """What the records of the topic say, by route. Those of a kind that is not known here are passed over."""
    claims: dict[RouteName, Claim] = {}
    resumptions: dict[RouteName, Resumption] = {}
    pauses: dict[RouteName, dict[str | None, Pause]] = defaultdict(dict)
    halts: dict[RouteName, dict[TopicPartition, Halt]] = defaultdict(dict)
    take_overs: dict[RouteName, dict[str, TakeOver]] = defaultdict(dict)
    places: dict[RouteName, Membership] = {}
    for key, value in records:
        match key:
            case {"route": str(route), "wish": "pause", "topic": None | str() as topic}:
                pauses[RouteName(route)][topic] = _pause_of(value)
            case {"route": str(route), "wish": "resume"}:
                if (resumption := _resumption_of(value)) is not None:
                    resumptions[RouteName(route)] = resumption
            case {"route": str(route), "halt": {"topic": str(topic), "partition": int(partition)}}:
                source = TopicPartition(topic, partition)
                if (halt := read_halt(source, value)) is not None:
                    halts[RouteName(route)][source] = halt
            case {"route": str(route), "take_over": {"topic": str(topic)}}:
                if (decision := read_take_over(value)) is not None:
                    take_overs[RouteName(route)][topic] = decision
            case {"route": str(route), "positions": "group"}:
                if (place := read_place(value)) is not None:
                    places[RouteName(route)] = place
            case {"route": str(route), **rest} if not rest and (claim := read_claim(value)) is not None:
                claims[RouteName(route)] = claim
    return {
        route: RouteWishes(
            claim=claims.get(route),
            resumption=resumptions.get(route),
            pause=pauses[route].get(None),
            topics=dict(sorted(named.items())),
            halts=dict(sorted(halts[route].items())),
            take_overs=dict(sorted(take_overs[route].items())),
            positions=places.get(route),
        )
        for route in set[RouteName]().union(claims, resumptions, pauses, halts, take_overs, places)
        for named in [{topic: pause for topic, pause in pauses[route].items() if topic is not None}]
    }


def claim_key(route: RouteName) -> Document:
    """Key of the claim on a route."""
    return {"route": route}


def pause_key(route: RouteName, topic: str | None) -> Document:
    """Key of the wish that a topic of a route pause, or all of it."""
    return {"route": route, "topic": topic, "wish": "pause"}


def resumption_record(route: RouteName, resumption: Resumption) -> tuple[Document, Document]:
    """It says so."""
    release = resumption.release
    return {"route": route, "wish": "resume"}, {
        "at_ms": release.at_ms,
        "by": release.by,
        "topics": sorted(resumption.topics),
        "partition": resumption.partition,
    }


def read_claim(value: Document | None) -> Claim | None:
    """None for what is no claim."""
    match value:
        case {
            "generation": int(generation),
            "digest": str(digest),
            "daemon": str(daemon),
            "host": str(host),
            "at_ms": int(at_ms),
        }:
            return Claim(generation=generation, digest=digest, daemon=daemon, host=host, at_ms=at_ms)
    return None


def _resumption_of(value: Document) -> Resumption | None:
    match value:
        case {
            "at_ms": int(at_ms),
            "by": str(by),
            "topics": [*topics],
            "partition": None | int() as partition,
        }:
            release = Release(at_ms=at_ms, by=by)
            return Resumption(release=release, topics=frozenset(map(str, topics)), partition=partition)
    return None


def _pause_of(value: Document) -> Pause:
    """Who wishes it counts less than that it is wished."""
    at_ms, by, reason = value.get("at_ms"), value.get("by"), value.get("reason")
    return Pause(
        at_ms=at_ms if isinstance(at_ms, int) else 0,
        by=by if isinstance(by, str) else "somebody",
        reason=reason if isinstance(reason, str) else None,
    )
