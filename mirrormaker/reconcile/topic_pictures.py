"""Topics of both ends of a route as a plan wants them, settings included, without asking for settings at
every look: those of a topic that the destination lacks are asked for at once, all of them every few looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from broker.client.admin import Admin, ConfigEntry
from broker.client.cluster import Cluster
from broker.client.operations import DESCRIBE_CONFIGS
from broker.errors import ProtocolError
from mirrormaker.flow.timing.appearances import Appearances
from mirrormaker.missing_rights import explained
from mirrormaker.plan.topics import select_topics
from mirrormaker.plan.world import ObservedTopic
from mirrormaker.reconcile.observed_topics import topics_of
from mirrormaker.topology.naming import TopicNaming

LOOKS_BETWEEN_SETTINGS = 6
_Settings = Mapping[str, Mapping[str, ConfigEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPictures:
    """One look at both ends."""

    source: Mapping[str, ObservedTopic]
    destination: Mapping[str, ObservedTopic]
    nodes: int
    """Of the destination."""
    has_settings: bool
    """Whether the destination was asked for its settings; else the topics there have none."""
    refused: Collection[str] = ()
    """Topics of the destination whose settings it did not tell; they have none either."""

    def lacks_settings_of(self, name: str) -> bool:
        """Whether nothing is known anew about the settings of a topic of the destination."""
        return not self.has_settings or name in self.refused


def _no_further(_: str) -> Collection[str]:
    return ()


class TopicCamera:
    """Takes pictures of two clusters; `problem` says why settings are not known where they are not."""

    def __init__(self, source: Cluster, destination: Cluster, appearances: Appearances) -> None:
        """`appearances` is told which topics the source has."""
        self.problem: str | None = None
        self._source = source
        self._destination = destination
        self._appearances = appearances
        self._looks_left = 0

    def look_closely(self) -> None:
        """Ask for all settings with the next picture."""
        self._looks_left = 0

    async def take(
        self,
        naming: TopicNaming,
        declared: Collection[str],
        further: Callable[[str], Collection[str]] = _no_further,
    ) -> TopicPictures:
        """A picture of the topics that the route takes, of what they become, of those `declared` for the
        destination, and of the `further` ones there for each that it takes. Raises BrokerError.
        """
        self._appearances.look_begins()
        metadata = await self._source.refresh()
        counts = {topic.name: len(topic.partitions) for topic in metadata.topics.values()}
        self._appearances.looked(self._source.cluster_id, counts)
        selected = select_topics(naming, metadata.topics.values())
        beside = {name for topic in selected for name in further(topic)}
        there = await self._destination.refresh({*selected.values(), *declared, *beside})
        close = self._looks_left == 0
        self._looks_left = LOOKS_BETWEEN_SETTINGS if close else self._looks_left - 1
        known = {name for name, topic in topics_of(there).items() if topic.exists and not topic.error}
        new = {topic for topic, name in selected.items() if name not in known}
        asked = set(selected) if close else new
        names = {*selected.values(), *declared, *beside} & known if close else set()
        if close:
            self.problem = None
        source_settings = await self._settings(self._source, asked)
        destination_settings = await self._settings(self._destination, names)
        return TopicPictures(
            source=topics_of(metadata, source_settings),
            destination=topics_of(there, destination_settings),
            nodes=len(there.nodes),
            has_settings=close,
            refused=names - destination_settings.keys(),
        )

    async def _settings(self, cluster: Cluster, topics: Collection[str]) -> _Settings:
        try:
            answers = await Admin(cluster).describe_topics_configs(topics)
        except ProtocolError as error:
            self.problem = str(error)
            return {}
        for topic, answer in answers.items():
            if isinstance(answer, ProtocolError):
                self.problem = str(explained(answer, cluster.name, topic, DESCRIBE_CONFIGS))
        return {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
