"""Which topics say whether unclean elections are allowed, as the controller follows it: by announced changes,
and, for a topic whose settings cannot be read, by its znode, until somebody puts it right. Meanwhile such a
topic allows none: what others have lost would be lost for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from broker.cluster.entity_configs import announced_changes
from broker.cluster.notices import changed_topic
from broker.cluster.states import in_flight
from broker.cluster.topics import read_topic_config
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError
from broker.errors import CoordinationError
from broker.telemetry import logger

CONFIG_CHANGES_KEPT = 100
"""Nodes that were away longer than this many changes read all configurations again when they come back."""

_UNCLEAN = "unclean.leader.election.enable"
_log = logger("controller")


class UncleanConfigs:
    """One reign's. `wake` is called when a topic that could not be read is to be looked at again."""

    def __init__(self, coordination: Coordination, wake: Callable[[], None]) -> None:
        self._coordination = coordination
        self._wake = wake
        self._allowed: dict[str, bool] = {}
        self._seen = ""
        self._changed: set[str] = set()
        self._watches: dict[str, Callable[[], None]] = {}

    @property
    def allowed(self) -> Mapping[str, bool]:
        """By the topics that say so, or cannot be read."""
        return dict(self._allowed)

    async def load(self) -> None:
        """Read all topics. Raises CoordinationError."""
        changes = await announced_changes(self._coordination)
        self._seen = changes[-1] if changes else ""
        await self._read(await self._coordination.children(paths.TOPIC_CONFIGS))

    async def look(self) -> bool:
        """Read topics that have changed, and remove old announcements; whether there were any such topics.

        Raises CoordinationError.
        """
        names = await announced_changes(self._coordination)
        fresh = [name for name in names if name > self._seen]
        self._seen = names[-1] if names else self._seen
        topics, self._changed = self._changed, set()
        topics.update([topic for name in fresh if (topic := await changed_topic(self._coordination, name))])
        await self._read(topics)
        for name in names[:-CONFIG_CHANGES_KEPT]:
            await self._coordination.delete(f"{paths.CONFIG_CHANGES}/{name}", recursive=True)
        return bool(topics)

    def close(self) -> None:
        """Watch nothing any more."""
        for end_watch in self._watches.values():
            end_watch()

    async def _read(self, topics: Iterable[str]) -> None:
        await in_flight(list(topics), self._read_one)

    async def _read_one(self, topic: str) -> None:
        try:
            config = await read_topic_config(self._coordination, topic)
        except SessionLostError:
            raise
        except CoordinationError as error:
            if topic not in self._watches:
                path = paths.topic_config(topic)
                self._watches[topic] = self._coordination.watch_data(path, partial(self._mark, topic))
                await self._read_one(topic)  # it may have changed before it was watched
                return
            _log.error("znode_unreadable", path=paths.topic_config(topic), reason=str(error))
            self._allowed[topic] = False
            return
        if (end_watch := self._watches.pop(topic, None)) is not None:
            end_watch()
        self._allowed.pop(topic, None)
        if _UNCLEAN in config:
            self._allowed[topic] = config[_UNCLEAN].strip().lower() == "true"

    def _mark(self, topic: str) -> None:
        self._changed.add(topic)
        self._wake()
