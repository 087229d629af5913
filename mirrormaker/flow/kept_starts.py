"""Where the partitions of an exactly-once route begin by what the topic of positions says."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID
from mirrormaker.flow.delivery import KnownStart
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.positions import Place, SourceId, has_predecessor, no_place, place_in
from mirrormaker.topology.model import RouteName, Start
from mirrormaker.topology.shared_positions import PositionOwners


class KeptStart(NamedTuple):
    """Of one partition."""

    at: KnownStart | None
    """None: it is not known there."""
    own: Place | None
    """The same, where the topic has it by the name of this route. What it has by another, as where the route
    was renamed, is written once more: it would be withdrawn under no name.
    """


class KeptStarts:
    """Of one route."""

    def __init__(
        self, route: RouteName, source: Cluster, kept: KeptTopic, find_owners: Callable[[], PositionOwners]
    ) -> None:
        """`kept`: the topic of positions, read to its end when it is asked. `find_owners`: whose positions
        are, by the file of now.
        """
        self._route = route
        self._source = source
        self._kept = kept
        self._find_owners = find_owners

    def find(self, assignment: Assignment) -> KeptStart:
        """Of one that is not copied yet. Raises CorruptRecordsError where no start is exact."""
        source = self._id_of(assignment)
        value = self._kept.get(source.key())
        if value is None:
            is_anew = has_predecessor((key for key, _ in self._kept.entries()), source)
            return KeptStart(Start.EARLIEST if is_anew else None, None)
        if not self._find_owners().may_take(value.get("route"), source.partition.topic, source.to):
            return KeptStart(None, None)  # the route that it is of copies the same topic there
        try:
            place = place_in(value, assignment.destinations, assignment.spread)
        except ValueError as error:
            raise no_place(source, error) from error
        return KeptStart(place, place if value.get("route") == self._route else None)

    def _id_of(self, assignment: Assignment) -> SourceId:
        known = self._source.topics.get(assignment.source.topic)
        return SourceId(
            cluster_id=self._source.cluster_id,
            topic_id=known.topic_id if known is not None else NO_TOPIC_ID,
            partition=assignment.source,
            to=assignment.destinations[0].topic,
        )
