"""Views of a route of which all lanes lead to one partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from broker.types import TopicPartition
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.entries import Repeaters
from mirrormaker.audit.lane_runs import Pass, passes_of
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView
from mirrormaker.flow.ways import LaneMap
from mirrormaker.ledger.page import Page
from mirrormaker.topology.model import ClusterName, Delivery, RouteName, RouteSpec, TopicSelection

ONE, OTHER, TO = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("jfk.flights", 0)


class Nobody:
    """A cluster that is not asked anything."""

    def new_lane(self, purpose: str) -> str:
        return purpose

    async def release_lane(self, lane: str) -> None:
        assert lane


def lane(*runs: tuple[int, int, int]) -> list[Pass]:
    """Pages of one run each: source offset, place, records."""
    pages: list[Page] = []
    for source, to, length in runs:
        page = Page(source)
        page.add_run(source, to, length)
        page.cover(source + length)
        pages.append(page)
    return passes_of(pages)


def exactly_once_view(known: Mapping[TopicPartition, list[Pass]], end: int) -> RouteView:
    """Of lanes that all lead to one partition, which ends there."""
    lane_map = LaneMap(
        destinations=(TO,),
        is_merged=True,
        targets={TO.topic: range(1)},
        parked_lane=None,
        skipped_lane=None,
    )
    reached = {
        source: max((each.source.next for each in passes), default=0) for source, passes in known.items()
    }
    return RouteView(
        route=RouteSpec(
            name=RouteName("a"),
            source=ClusterName("jfk"),
            destination=ClusterName("aggregate"),
            topics=TopicSelection(include=("flights",)),
            delivery=Delivery.EXACTLY_ONCE,
        ),
        source=cast("Any", None),
        destination=cast("Any", Nobody()),
        partitions=tuple(known),
        lanes=dict.fromkeys(known, lane_map),
        windows={source: Range(0, each) for source, each in reached.items()},
        source_starts=dict.fromkeys(known, 0),
        ends=reached,
        positions=reached,
        to_windows={TO: Range(0, end)},
        to_starts={TO: 0},
        to_ends={TO: end},
        to_reached={TO: end},
        passes={(source, TO): passes for source, passes in known.items()},
        indexes={TO: DestinationIndex(each for passes in known.values() for each in passes)},
        repeaters=Repeaters(is_route_one=False),
    )
