"""Settings of topics as they are in ZooKeeper, kept current, and the log configuration that follows from
them.

Loaded as a whole at start; `changed` is told of what is announced later. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.states import in_flight
from broker.errors import ConfigurationError
from broker.storage.log_config import LogConfig
from broker.telemetry import logger

log = logger("topic_configs")

KEEPING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own cannot be read: all its records are kept."""


class TopicConfigs:
    """Overrides by topic over the node's own defaults."""

    def __init__(
        self,
        entity_configs: EntityConfigs,
        defaults: LogConfig,
        *,
        on_change: Callable[[str, LogConfig], None],
    ) -> None:
        self._entity_configs = entity_configs
        self._defaults = defaults
        self._on_change = on_change
        self._overrides: dict[str, dict[str, str]] = {}

    @property
    def defaults(self) -> LogConfig:
        """What logs get whose topic says nothing."""
        return self._defaults

    @defaults.setter
    def defaults(self, defaults: LogConfig) -> None:
        self._defaults = defaults

    async def load(self) -> None:
        """Read the settings of every topic. Raises CoordinationError."""

        await in_flight(await self._entity_configs.names("topics"), self._read)

    async def refresh(self, topic: str) -> LogConfig:
        """Read one topic's settings and return its log configuration. Raises CoordinationError."""
        await self._read(topic)
        return self.of(topic)

    async def _read(self, topic: str) -> None:
        """Where they are damaged the last ones hold, or such that nothing of the topic is removed."""
        settings = await self._entity_configs.readable(f"topics/{topic}")
        if settings is not None:
            self._overrides[topic] = settings
            return
        self._overrides.setdefault(topic, dict(KEEPING))
        log.error("topic_config_unreadable", topic=topic, settings=self._overrides[topic])

    async def changed(self, topic: str) -> None:
        """Take in a change that was announced. Raises CoordinationError."""
        self._on_change(topic, await self.refresh(topic))
        log.info("topic_config_changed", topic=topic, settings=self._overrides[topic])

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._overrides.pop(topic, None)

    async def overrides(self, topic: str) -> Mapping[str, str]:
        """What was set for this topic itself; ZooKeeper is asked about one that the node has no replica of.

        Raises CoordinationError.
        """
        if topic in self._overrides:
            return self._overrides[topic]
        return await self._entity_configs.readable(f"topics/{topic}") or {}

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
