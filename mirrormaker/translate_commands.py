"""`mirrormaker translate`: offsets of a route's source as offsets of its destination, and back."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.client.cluster import Cluster
from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.clusters import open_cluster
from mirrormaker.ledger import two_way
from mirrormaker.ledger.lane_map import Standing, Translation
from mirrormaker.ledger.reading import SourceIds, ask_ledger, ask_source, lanes_now, read_ledger
from mirrormaker.ledger.view import LedgerView
from mirrormaker.reconcile.pauses import find_route
from mirrormaker.state import StateDirectory
from mirrormaker.status import load_for_status
from mirrormaker.topology.failover_groups import return_route
from mirrormaker.topology.further_topics import further_topics
from mirrormaker.topology.model import RouteSpec, Topology
from mirrormaker.topology.naming import TopicNaming, compile_naming
from mirrormaker.topology.ways import ways_back

_AddVerb = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


class Place(NamedTuple):
    """An offset of a partition."""

    partition: TopicPartition
    offset: int

    @classmethod
    def parse(cls, text: str) -> Place:
        """TOPIC:PARTITION:OFFSET. Raises ValueError."""
        topic, partition, offset = text.rsplit(":", 2)
        place = cls(TopicPartition(topic, int(partition)), int(offset))
        if not topic or place.partition.partition < 0 or place.offset < 0:
            raise ValueError(text)
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A place, and what it is at the other side."""

    place: Place
    to: TopicPartition
    translation: Translation
    group: Translation | None = None
    """Where a group that stands at the place is carried to, as routes lead both ways; None: to the same."""

    def line(self) -> str:
        """For eyes and for `cut`: tabs between."""
        told = self.translation
        offset = _offset(told)
        exactness = "exact" if told.is_exact else "careful"
        columns = [*self.place.partition, self.place.offset, *self.to, offset, told.standing.value, exactness]
        if self.group is not None and self.group.offset != told.offset:
            columns.append(f"groups go on at {_offset(self.group)}")
        return "\t".join(map(str, columns))

    def document(self) -> dict[str, Any]:
        """Plain data; an offset is null where only the first that there is misses nothing."""
        group = self.group or self.translation
        return {
            "topic": self.place.partition.topic,
            "partition": self.place.partition.partition,
            "offset": self.place.offset,
            "to": {
                "topic": self.to.topic,
                "partition": self.to.partition,
                "offset": self.translation.offset,
            },
            "standing": self.translation.standing.value,
            "exact": self.translation.is_exact,
            "group": {"offset": group.offset, "exact": group.is_exact},
        }


def _offset(told: Translation) -> str:
    return "first" if told.offset is None else str(told.offset)


def add_translate_verb(add_verb: _AddVerb) -> None:
    """`translate FILE ROUTE [TOPIC PARTITION OFFSET] [--back]`."""
    verb = add_verb("translate", _translate, "say what offsets of a route's source are at its destination")
    verb.add_argument("route", metavar="ROUTE", help="the name of the route")
    verb.add_argument("topic", metavar="TOPIC", nargs="?", help="left out: TOPIC:PARTITION:OFFSET on stdin")
    verb.add_argument("partition", metavar="PARTITION", nargs="?", type=int)
    verb.add_argument("offset", metavar="OFFSET", nargs="?", type=int)
    verb.add_argument("--back", action="store_true", help="from the destination's offsets to the source's")
    verb.add_argument("--output", choices=["text", "json"], default="text")


def _translate(options: argparse.Namespace) -> int:
    topology = load_for_status(options.file)
    if options.topic is None:
        try:
            places = list(_read_places(sys.stdin))
        except UnicodeDecodeError as error:
            raise ConfigurationError(["stdin: what is there is not text in UTF-8"]) from error
    elif options.offset is None:
        raise ConfigurationError(["translate takes TOPIC PARTITION OFFSET, or lines on stdin"])
    elif below := [name for name in ("partition", "offset") if getattr(options, name) < 0]:
        raise ConfigurationError([f"{name.upper()}: {getattr(options, name)} is below 0" for name in below])
    else:
        places = [Place(TopicPartition(options.topic, options.partition), options.offset)]
    told, untold = asyncio.run(translate(topology, options.route, places, back=options.back))
    if options.output == "text":
        sys.stdout.writelines(f"{each.line()}\n" for each in told)
    elif told or not untold:
        sys.stdout.write(json.dumps([each.document() for each in told], indent=2) + "\n")
    if untold:
        raise ConfigurationError(untold)
    return 0


def _read_places(lines: Iterable[str]) -> Iterator[Place]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Place.parse(line.strip())
            except ValueError as error:
                raise ConfigurationError(
                    [f"stdin:{number}: {line.strip()!r} is no TOPIC:PARTITION:OFFSET"]
                ) from error


async def translate(
    topology: Topology, name: str, places: Iterable[Place], *, back: bool = False
) -> tuple[list[Told], list[str]]:
    """What the ledger says of each place, and once for each partition of the others why it says nothing: the
    route does not take it, or nothing of it was copied. The source need not be there.

    Raises ConfigurationError where there is no such route, BrokerError.
    """
    route = find_route(topology, name)
    naming = compile_naming(route.source, route.topics)
    spec = topology.clusters[route.source]
    known_id = spec.cluster_id or StateDirectory(topology.data_dir).kept_cluster_ids().get(route.source)
    source = await ask_source(spec)
    ids = SourceIds(source, known_id)
    async with open_cluster(topology.clusters[route.destination]) as destination:
        view = await read_ledger(destination)
        returned: LedgerView | None = None
        if source is not None and ways_back(route, topology.routes):
            returned = await ask_ledger(spec, destination.cluster_id)
    both_run = return_route(route, topology.routes) is None
    told: list[Told] = []
    untold: dict[str, None] = {}
    for place in places:
        try:
            found = _back(view, route, naming, ids, place) if back else _forward(view, naming, ids, place)
        except ConfigurationError as error:
            untold |= dict.fromkeys(error.problems)
        else:
            if returned is not None:
                both = _Both(view, returned, ids, destination, back=back, both_run=both_run)
                found = both.told(found)
            told.append(found)
    return told, list(untold)


class _Both:
    """The ledgers of a route and of the way back, where there is one: that one's the source keeps."""

    def __init__(
        self,
        view: LedgerView,
        returned: LedgerView,
        ids: SourceIds,
        destination: Cluster,
        *,
        back: bool,
        both_run: bool,
    ) -> None:
        """`back`: places are of the destination. `both_run`: what was born at the other side and is still to
        come nobody here has had.
        """
        self._view = view
        self._returned = returned
        self._ids = ids
        self._destination = destination
        self._back = back
        self._both_run = both_run

    def told(self, told: Told) -> Told:
        """For a record that came by the way back, its place by that one's ledger; and where groups go on."""
        here, there = told.place.partition, told.to
        source, to = (there, here) if self._back else (here, there)
        own = self._ids.choose(self._view, source, to)
        forth = None if own is None else self._view.lanes[own]
        ways = lanes_now(self._returned, self._destination, to, source.topic)
        back = next((self._returned.lanes[way] for way in ways if way.to_partition == source.partition), None)
        leading, following = (back, forth) if self._back else (forth, back)
        pending = None
        if self._both_run:
            pending = 0 if following is None else following.next or 0
        told = replace(told, group=two_way.translate(told.place.offset, leading, following, pending))
        if back is None or told.translation.standing is Standing.COPIED:
            return told
        place = back.forward(told.place.offset) if self._back else back.back(told.place.offset)
        return replace(told, translation=place) if place.standing is Standing.COPIED else told


def _forward(view: LedgerView, naming: TopicNaming, ids: SourceIds, place: Place) -> Told:
    source = place.partition
    if not naming.selects(source.topic):
        raise ConfigurationError([f"the route does not take the topic {source.topic!r}"])
    to = naming.destination_of(source.topic)
    candidates = {lane.destination for lane in ids.lanes(view) if (lane.source, lane.to) == (source, to)}
    if len(candidates) > 1:
        raise ConfigurationError([f"{source} is spread over {len(candidates)} partitions of {to}"])
    for destination in candidates:
        lane = ids.choose(view, source, destination)
        if lane is not None:
            return Told(place=place, to=destination, translation=view.lanes[lane].forward(place.offset))
    raise ConfigurationError([f"nothing of {source} is in the ledger"])


def _back(view: LedgerView, route: RouteSpec, naming: TopicNaming, ids: SourceIds, place: Place) -> Told:
    """In a topic that is no copy, of what the route sends there beside its copies."""
    lanes = [
        lane for lane in ids.lanes(view) if lane.destination == place.partition and naming.selects(lane.topic)
    ]
    candidates = {lane.source for lane in lanes if naming.destination_of(lane.topic) == lane.to} or {
        lane.source for lane in lanes if lane.to in further_topics(route, naming, lane.topic)
    }
    if len(candidates) > 1:
        raise ConfigurationError([f"{len(candidates)} partitions are gathered in {place.partition}"])
    for source in candidates:
        lane = ids.choose(view, source, place.partition)
        if lane is not None:
            return Told(place=place, to=source, translation=view.lanes[lane].back(place.offset))
    raise ConfigurationError([f"nothing of the ledger leads to {place.partition}"])
