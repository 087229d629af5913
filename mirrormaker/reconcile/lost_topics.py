"""Topics of a destination that were deleted there, and made anew, with what a route had copied to them.

A route that makes one which it had copied to before, as its positions say, tells it, also where nobody ran
when it was deleted; of dead letters and topics of steps, to which not all records go, its ledger says whether
it had. One that somebody else makes, be it another route that writes it, another daemon or a
person, is known by its id: it is another than a look of this process has seen. So each route that wrote
the topic tells of it, once for every time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from broker.errors import BrokerError
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId
from mirrormaker.plan.grounds import Written
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.adoption import Adoption
from mirrormaker.reconcile.drift import News
from mirrormaker.topology.model import RouteSpec

_log = logger("topics")


class LostTopics:
    """Of one route, as far as this process has seen them."""

    def __init__(self, adoption: Adoption, news: News) -> None:
        self._adoption = adoption
        self._news = news
        self._seen: dict[str, set[TopicId]] = defaultdict(set)
        """Ids by name: a node that was left behind may show a former one again."""
        self._made: set[str] = set()
        """Topics that the route has made, and whose new ids were not seen yet."""
        self._untold: set[str] = set()
        self._unsure: set[str] = set()
        """Topics that the route has made, and that it may have written before."""

    async def tell(
        self,
        route: RouteSpec,
        written: Written,
        copies: Collection[str],
        there: Mapping[str, ObservedTopic],
        made: AbstractSet[str],
    ) -> None:
        """Tell of those that are lost now. `copies`: those of the written ones to which all goes that has
        been copied, as the positions say. `there`: what the destination had before the route `made` some.
        Raises BrokerError: then they are told with the next look.
        """
        names = frozenset().union(*written.values())
        self._forget_others(names)
        certain = {name for name in names & made if name in self._seen or name in copies}
        self._untold |= certain
        self._unsure |= names & made - certain
        self._untold |= {name for name in names if name in there and self._is_another(there[name])}
        self._made |= names & made
        looked_at = self._untold | self._unsure
        asked = {topic for topic, some in written.items() if not looked_at.isdisjoint(some)}
        begun = await self._adoption.find_begun(route, asked) if asked else set()
        if unsure := self._unsure.intersection(name for topic in begun for name in written[topic]):
            try:
                self._untold |= await self._adoption.find_gone(unsure)
            except BrokerError as error:  # copying does not wait for what is only told
                _log.warning("lost_topics_not_known", topics=sorted(unsure), error=str(error))
        self._unsure.clear()
        for name in sorted(self._untold):
            if topics := sorted(topic for topic in begun if name in written[topic]):
                self._news.note("destination_topic_lost", destination=name, topics=topics)
        self._untold.clear()

    def _is_another(self, topic: ObservedTopic) -> bool:
        """Whether somebody else has made it since it was seen last."""
        if topic.topic_id == NO_TOPIC_ID or topic.topic_id in self._seen.get(topic.name, ()):
            return False
        is_own = topic.name in self._made
        was_there = topic.name in self._seen
        self._seen[topic.name].add(topic.topic_id)
        self._made.discard(topic.name)
        return was_there and not is_own

    def _forget_others(self, names: frozenset[str]) -> None:
        for name in self._seen.keys() - names:
            del self._seen[name]
        self._made &= names
        self._untold &= names
        self._unsure &= names
