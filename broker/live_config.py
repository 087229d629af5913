"""The settings of a node while it runs: those it started with, under those that ZooKeeper holds (KIP-226).

`/config/brokers/<default>` has settings for all nodes, `/config/brokers/ID` those of one, which win. Both are
read at start, before anything is made of the settings, and again whenever a change is announced; then the
parts that a change concerns get their configuration anew. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from broker.cluster.entity_configs import EntityConfigs
from broker.config import SETTINGS, LoadedConfig, NodeConfig, SettingDeclaration
from broker.config_loading import overridden
from broker.listener_config import PREFIXED, listener_setting_name
from broker.server.node_settings import Layer, NodeSetting, NodeSettings
from broker.server.topic_settings import TOPIC_SETTINGS
from broker.telemetry import logger

log = logger("live_config")

ALL_NODES = "<default>"

DYNAMIC = frozenset(
    {
        *(setting.node_setting for setting in TOPIC_SETTINGS.values() if setting.node_setting),
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.io.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""What can be altered while a node runs: whatever topics inherit, and a few settings of the node itself, some
of which listeners may have of their own. The number of recovery threads counts at the next start.
"""


class LiveConfig:
    """See the module's description."""

    def __init__(self, loaded: LoadedConfig, entity_configs: EntityConfigs) -> None:
        self._loaded = loaded
        self._entity_configs = entity_configs
        self._node = loaded.node
        self._on_change: Callable[[NodeConfig], Awaitable[None]] | None = None
        self.settings = NodeSettings(
            node_settings(loaded), check=lambda settings: overridden(loaded.node, settings)
        )

    @property
    def loaded(self) -> LoadedConfig:
        """All settings in force, and which of them somebody gave."""
        given = self._loaded.given | self.settings.overrides.keys()
        return LoadedConfig(node=self._node, given=given)

    async def load(self) -> None:
        """Read what ZooKeeper holds. Raises CoordinationError."""
        for layer in Layer:
            await self._read(layer)
        self._node = overridden(self._loaded.node, self.settings.overrides)

    def on_change(self, handler: Callable[[NodeConfig], Awaitable[None]]) -> None:
        """Have `handler` told of all settings whenever some have changed."""
        self._on_change = handler

    async def changed(self, entity: str) -> None:
        """Take in a change that was announced for one node or all. Raises CoordinationError."""
        if entity not in (ALL_NODES, str(self._node.broker_id)):
            return
        await self._read(Layer.ALL_NODES if entity == ALL_NODES else Layer.THIS_NODE)
        node = overridden(self._loaded.node, self.settings.overrides)
        if node == self._node:
            return
        self._node = node
        log.info("node_config_changed", settings=_shown(self.settings))
        if self._on_change is not None:
            await self._on_change(node)

    async def _read(self, layer: Layer) -> None:
        """While they cannot be read the last ones hold."""
        entity = ALL_NODES if layer is Layer.ALL_NODES else str(self._node.broker_id)
        settings = await self._entity_configs.readable(f"brokers/{entity}")
        if settings is not None:
            self.settings.adopt(layer, settings)


def node_settings(loaded: LoadedConfig) -> dict[str, NodeSetting]:
    """Every setting of the node as its clients see it."""
    node = loaded.node
    settings = {
        name: _setting(declared, name, getattr(node, declared.field_name), is_given=name in loaded.given)
        for name, declared in SETTINGS.items()
    }
    for listener in node.listener_texts.bound:
        for setting in PREFIXED:
            name, place = listener_setting_name(listener.name, setting), (listener.name, setting)
            own = node.of_listeners.get(place)
            settings[name] = _setting(SETTINGS[setting], name, own, is_given=place in node.of_listeners)
    return settings


def _setting(declared: SettingDeclaration, name: str, value: Any, *, is_given: bool) -> NodeSetting:
    return NodeSetting(
        name=name,
        kind=declared.kind,
        default=None if declared.default is None else declared.kind.render(declared.default),
        given=declared.kind.render(value) if is_given else None,
        dynamic=declared.name in DYNAMIC,
        doc=declared.doc,
    )


def _shown(settings: NodeSettings) -> Mapping[str, str | None]:
    return {name: settings.values(name)[0].value for name in settings.overrides}
