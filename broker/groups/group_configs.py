"""Settings of single groups of the consumer protocol (KIP-848), as ZooKeeper has them in `/config/groups`,
over those of the node.

They are loaded as a whole at start; `changed` is told of what is announced later. A group goes by them from
its next round on. What is set must lie within the node's bounds: settings that do not (a node may have been
given other bounds since) are logged, and the node's hold. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.cluster.entity_configs import EntityConfigs
from broker.cluster.states import in_flight
from broker.coordination import paths
from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.settings import Kind, integer, suggestion
from broker.telemetry import logger

log = logger("group_configs")

KIND: Kind[Any] = integer(1)
"""That of all of them."""

HEARTBEAT_INTERVAL, SESSION_TIMEOUT = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"


class GroupSetting(NamedTuple):
    """`node_setting` holds where the group says nothing."""

    node_setting: str
    doc: str


GROUP_SETTINGS: Mapping[str, GroupSetting] = {
    HEARTBEAT_INTERVAL: GroupSetting(
        "group.consumer.heartbeat.interval.ms",
        "How often members are to be heard.",
    ),
    SESSION_TIMEOUT: GroupSetting(
        "group.consumer.session.timeout.ms",
        "Silence after which a member is removed.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBounds:
    """What groups may be given; each field names the setting of the node that fills it."""

    heartbeat_interval_min_ms: int = 5_000
    """`group.consumer.min.heartbeat.interval.ms`."""
    heartbeat_interval_max_ms: int = 15_000
    """`group.consumer.max.heartbeat.interval.ms`."""
    session_timeout_min_ms: int = 45_000
    """`group.consumer.min.session.timeout.ms`."""
    session_timeout_max_ms: int = 60_000
    """`group.consumer.max.session.timeout.ms`."""


class GroupConfigs:
    """What was set for each group."""

    def __init__(
        self, entity_configs: EntityConfigs, defaults: ConsumerGroupConfig, bounds: GroupBounds
    ) -> None:
        self._entity_configs = entity_configs
        self._defaults = defaults
        self._bounds = bounds
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._configs: dict[str, ConsumerGroupConfig] = {}

    async def load(self) -> None:
        """Read the settings of every group that has any. Raises CoordinationError."""
        await in_flight(await self._entity_configs.names("groups"), self._read)

    async def changed(self, name: str) -> None:
        """Take in a change that was announced for the group of a znode. Raises CoordinationError."""
        await self._read(name)
        group_id = paths.decoded_name(name)
        log.info("group_config_changed", group=group_id, settings=dict(self.overrides(group_id)))

    async def _read(self, name: str) -> None:
        """Settings that are damaged leave the last ones in force."""
        settings = await self._entity_configs.readable(group_entity(name))
        if settings is not None:
            self._adopt(paths.decoded_name(name), settings)

    def _adopt(self, group_id: str, settings: Mapping[str, str]) -> None:
        self._overrides.pop(group_id, None)
        self._configs.pop(group_id, None)
        if not settings:
            return
        try:
            config = self._checked(settings)
        except ProtocolError as error:
            log.warning("group_settings_ignored", group=group_id, reason=str(error))
            return
        self._overrides[group_id], self._configs[group_id] = settings, config

    @property
    def names(self) -> Collection[str]:
        """The groups that have settings of their own."""
        return self._overrides.keys()

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """What was set for the group itself, and holds."""
        return self._overrides.get(group_id, {})

    def of(self, group_id: str) -> ConsumerGroupConfig:
        """What holds for the group."""
        return self._configs.get(group_id, self._defaults)

    def require_valid(self, settings: Mapping[str, str]) -> None:
        """Raises ProtocolError INVALID_CONFIG that lists what is wrong with settings of a group."""
        self._checked(settings)

    def _checked(self, settings: Mapping[str, str]) -> ConsumerGroupConfig:
        values, problems = {}, []
        for name, text in settings.items():
            if name not in GROUP_SETTINGS:
                problems.append(f"{name}: unknown setting of a group{suggestion(name, GROUP_SETTINGS)}")
                continue
            try:
                values[name] = KIND.parse(text)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        config = replace(
            self._defaults,
            heartbeat_interval_ms=values.get(HEARTBEAT_INTERVAL, self._defaults.heartbeat_interval_ms),
            session_timeout_ms=values.get(SESSION_TIMEOUT, self._defaults.session_timeout_ms),
        )
        problems += self._out_of_bounds(config)
        if problems:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
        return config

    def _out_of_bounds(self, config: ConsumerGroupConfig) -> Iterator[str]:
        bounds = self._bounds
        interval_ms, timeout_ms = config.heartbeat_interval_ms, config.session_timeout_ms
        for name, value, low, high in (
            (
                HEARTBEAT_INTERVAL,
                interval_ms,
                bounds.heartbeat_interval_min_ms,
                bounds.heartbeat_interval_max_ms,
            ),
            (SESSION_TIMEOUT, timeout_ms, bounds.session_timeout_min_ms, bounds.session_timeout_max_ms),
        ):
            if not low <= value <= high:
                yield f"{name}: {value} is not from {low} to {high}, the bounds of this node"
        if interval_ms >= timeout_ms:
            yield f"{SESSION_TIMEOUT}: {timeout_ms} is not above {HEARTBEAT_INTERVAL}, {interval_ms}"


def group_entity(name: str) -> str:
    """Where the settings of a group are below `/config`, by the name of its znode."""
    return f"groups/{name}"
