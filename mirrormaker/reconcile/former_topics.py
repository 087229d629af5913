"""Topics that a route has copied before its process began, by the ledger of its destination: those of them
that the source lacks were deleted, maybe while nobody looked.

Positions do not tell, as a source forgets them along with their topic. The ledger remembers for as long as
the destination has records of a topic, also where somebody has gone on behind its deletion: of that tell the
notes of what was left out. A topic that came again after such a note has one of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.client.cluster import Cluster
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.skips import TIMEOUT_MS
from mirrormaker.flow.trouble import TroubleKind
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.topology.further_topics import written_topics
from mirrormaker.topology.model import RouteName, RouteSpec
from mirrormaker.topology.naming import TopicNaming

_log = logger("reconcile")


class FormerTopics:
    """Of one route."""

    def __init__(self, source: Cluster, destination: Cluster, ledger: RouteLedger) -> None:
        self._source = source
        self._destination = destination
        self._ledger = ledger

    async def find(
        self, route: RouteSpec, naming: TopicNaming, here: Collection[str]
    ) -> frozenset[str] | None:
        """Topics that the route takes and has copied, beside those that are `here`, and whose deletion nobody
        has gone on behind; None while that cannot be known.
        """
        if not self._ledger.is_known:
            return None
        ways = {
            (lane.topic, lane.to)
            for lane in self._ledger.view.lanes
            if lane.cluster == self._source.cluster_id and lane.topic not in here
        }
        copied = {
            topic
            for topic, to in ways
            if naming.selects(topic) and to in written_topics(route, naming, topic)
        }
        settled = await self.settled(route.name) if copied else frozenset()
        return None if settled is None else frozenset(copied - settled)

    async def settled(self, route: RouteName) -> frozenset[str] | None:
        """Topics whose deletion somebody has gone on behind; None while that cannot be known."""
        try:
            return frozenset(await self._settled(route))
        except BrokerError as error:
            _log.info("former_topics_not_known", route=route, error=str(error))
            return None

    async def _settled(self, route: RouteName) -> set[str]:
        metadata = await self._destination.refresh([SKIPPED_TOPIC])
        if not metadata.partitions(SKIPPED_TOPIC):
            return set()  # looking makes no topic
        async with KeptTopic(self._destination, SKIPPED_TOPIC, timeout_ms=TIMEOUT_MS) as notes:
            await notes.read_to_end()
            return settled_deletions(route, notes.entries())


def settled_deletions(route: RouteName, notes: Iterable[tuple[Document, Document]]) -> set[str]:
    """Topics of which the newest note is that of a deletion. Pure."""
    deleted, recreated = TroubleKind.TOPIC_DELETED.value, TroubleKind.TOPIC_RECREATED.value
    newest: dict[str, tuple[int, str]] = {}
    for key, value in notes:
        match key, value:
            case (
                {"route": str(name), "topic": str(topic)},
                {"reason": str(reason), "at_ms": int(at_ms)},
            ) if name == route and reason in (deleted, recreated):
                newest[topic] = max(newest.get(topic, (0, "")), (at_ms, reason))
    return {topic for topic, (_, reason) in newest.items() if reason == deleted}
