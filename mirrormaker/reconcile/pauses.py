"""Wishes that a route, or topics of it, pause and go on again, as records of the control topic. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from difflib import get_close_matches

from broker.errors import ConfigurationError
from mirrormaker.flow.kept_view import Document
from mirrormaker.reconcile.control import Pause, Resumption, RouteWishes, pause_key
from mirrormaker.reconcile.halts import release_records
from mirrormaker.topology.model import RouteName, RouteSpec, Topology
from mirrormaker.topology.naming import compile_naming

Records = list[tuple[Document, Document | None]]


def find_route(topology: Topology, name: str, topics: Collection[str] = ()) -> RouteSpec:
    """The route of that name, which takes these topics. Raises ConfigurationError when it does not."""
    routes = {str(route.name): route for route in topology.routes}
    if name not in routes:
        close = get_close_matches(name, routes, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f": there are {', '.join(routes)}"
        raise ConfigurationError([f"there is no route {name!r}{hint}"])
    naming = compile_naming(routes[name].source, routes[name].topics)
    if strange := [topic for topic in topics if not naming.selects(topic)]:
        raise ConfigurationError(
            [f"the route {name!r} does not take the topic {topic!r}" for topic in strange]
        )
    return routes[name]


def pause_records(route: RouteName, topics: Collection[str], pause: Pause) -> Records:
    """What to write to have these topics pause, or the whole route when there are none."""
    return [(pause_key(route, topic), asdict(pause)) for topic in topics or (None,)]


def find_pause(route: RouteName, wishes: RouteWishes, resumption: Resumption) -> str | None:
    """What is wished to pause and holds what is resumed, as that names less; None: nothing does."""
    is_whole = resumption.partition is None
    if wishes.pause is not None and not (is_whole and not resumption.topics):
        return f"the route {route!r} is paused as a whole: resume it without naming topics or partitions"
    held = [topic for topic in wishes.topics if not resumption.topics or topic in resumption.topics]
    if is_whole or not held:
        return None
    return f"the topic {held[0]!r} is paused as a whole: resume it without naming partitions"


def require_resumable(route: RouteName, wishes: RouteWishes, resumption: Resumption) -> None:
    """Raises ConfigurationError for topics of a route that pauses as a whole, and for a partition of what
    does; where that stands by a failure policy it may be released, and goes on with the rest.
    """
    pause = find_pause(route, wishes, resumption)
    if pause is None or (resumption.partition is not None and _releases(route, wishes, resumption)):
        return
    raise ConfigurationError([pause])


def resume_records(route: RouteName, wishes: RouteWishes, resumption: Resumption) -> Records:
    """What to write to have go on what it covers; nothing when nothing pauses. Where it names a partition,
    only what stands by a failure policy. Raises as `require_resumable`.
    """
    require_resumable(route, wishes, resumption)
    topics = resumption.topics
    released = _releases(route, wishes, resumption)
    if resumption.partition is not None:
        return released
    paused: list[str | None] = [*wishes.topics]
    if wishes.pause is not None:
        paused.append(None)
    taken_back: Records = [
        (pause_key(route, topic), None) for topic in paused if not topics or topic in topics
    ]
    return taken_back + released


def _releases(route: RouteName, wishes: RouteWishes, resumption: Resumption) -> Records:
    halts = {source: halt for source, halt in wishes.halts.items() if resumption.covers(source)}
    return release_records(route, halts, resumption.release)


def name_resumed(key: Document) -> str | None:
    """What a record of `resume_records` is about: a topic, a partition, or None for all of the route."""
    match key:
        case {"halt": {"topic": str(topic), "partition": int(partition)}}:
            return topic if partition < 0 else f"{topic}-{partition}"
        case {"topic": str(topic)}:
            return topic
    return None
