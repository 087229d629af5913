"""Settings of topics as they are in ZooKeeper, kept current, and the log configuration that follows from
them.

Loaded as a whole at start; a change is announced under `/config/changes`, whose watch wakes `run`, which
reads what was announced and tells `on_change`. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker.cluster.topics import read_topic_config
from broker.coordination import paths
from broker.coordination.protocol import Coordination, Znode
from broker.coordination.znodes import ConfigChangeZnode
from broker.errors import ConfigurationError, CoordinationError
from broker.storage.log_config import LogConfig
from broker.telemetry import logger

log = logger("topic_configs")

RETRY_SECONDS = 1.0


class TopicConfigs:
    """Overrides by topic over the node's own defaults."""

    def __init__(
        self,
        coordination: Coordination,
        defaults: LogConfig,
        *,
        on_change: Callable[[str, LogConfig], None],
    ) -> None:
        self._coordination = coordination
        self._defaults = defaults
        self._on_change = on_change
        self._overrides: dict[str, dict[str, str]] = {}
        self._last_change = ""
        self._announced = asyncio.Event()

    @property
    def defaults(self) -> LogConfig:
        return self._defaults

    async def load(self) -> None:
        """Read the settings of every topic. Raises CoordinationError."""
        self._last_change = max(await self._coordination.children(paths.CONFIG_CHANGES), default="")
        for topic in await self._coordination.children(paths.TOPIC_CONFIGS):
            self._overrides[topic] = await read_topic_config(self._coordination, topic)

    async def refresh(self, topic: str) -> LogConfig:
        """Read one topic's settings and return its log configuration. Raises CoordinationError."""
        self._overrides[topic] = dict(await read_topic_config(self._coordination, topic))
        return self.of(topic)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._overrides.pop(topic, None)

    def overrides(self, topic: str) -> Mapping[str, str]:
        """What was set for this topic itself."""
        return self._overrides.get(topic, {})

    def of(self, topic: str) -> LogConfig:
        """The configuration of the topic's logs; a setting that cannot be read is logged and left at its
        default.
        """
        overrides = self._overrides.get(topic)
        if not overrides:
            return self._defaults
        config = self._defaults
        for name, text in overrides.items():
            try:
                config = config.overridden({name: text})
            except ConfigurationError as error:
                log.warning("topic_setting_ignored", topic=topic, setting=name, reason=str(error))
        return config

    async def run(self) -> None:
        """Follow announced changes; ends by cancellation."""
        end_watch = self._coordination.watch_children(paths.CONFIG_CHANGES, self._announced.set)
        try:
            while True:
                await self._announced.wait()
                self._announced.clear()
                try:
                    await self._follow()
                except CoordinationError as error:
                    log.warning("topic_configs_stale", reason=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    self._announced.set()
        finally:
            end_watch()

    async def _follow(self) -> None:
        for name in await self._coordination.children(paths.CONFIG_CHANGES):
            if name <= self._last_change:
                continue
            topic = _topic_of(name, await self._coordination.get(f"{paths.CONFIG_CHANGES}/{name}"))
            if topic:
                self._on_change(topic, await self.refresh(topic))
                log.info("topic_config_changed", topic=topic, settings=self._overrides[topic])
            self._last_change = name


def _topic_of(name: str, znode: Znode | None) -> str:
    """The topic that a change is about; empty for changes of other things and for unreadable ones."""
    if znode is None:
        return ""
    try:
        change = ConfigChangeZnode.decode(znode.data, f"{paths.CONFIG_CHANGES}/{name}")
    except CoordinationError as error:
        log.warning("config_change_ignored", reason=str(error))
        return ""
    kind, _, entity = change.entity_path.partition("/")
    return entity if kind == "topics" else ""
