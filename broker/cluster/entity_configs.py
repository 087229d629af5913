"""Settings that ZooKeeper holds: of topics, nodes and whatever else has any, each kind below `/config`.

An entity is named by its path there: `topics/T`, `brokers/1`, `brokers/<default>` for all nodes. A change is
written conditionally, so that two who change different settings at once lose neither, and then announced
under `/config/changes`, where every node follows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    Coordination,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    Znode,
)
from broker.coordination.znodes import ConfigChangeZnode, ConfigZnode
from broker.errors import CoordinationError
from broker.telemetry import logger

log = logger("entity_configs")

RETRY_SECONDS = 1.0

Follower = Callable[[str], Awaitable[None]]
"""Told which entity of a kind changed, by the part of its path behind the kind."""
Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes the new settings of an entity out of those it has."""


async def read_entity_config(coordination: Coordination, entity: str) -> dict[str, str]:
    """What is set for an entity; empty when nothing is. Raises CoordinationError."""
    return _decoded(await coordination.get(paths.entity_config(entity)), entity)


async def alter_entity_config(coordination: Coordination, entity: str, change: Change) -> None:
    """Replace the settings of an entity by what `change` makes of them, and tell the nodes.

    `change` may be called several times, and its exceptions go on. Raises CoordinationError.
    """
    path = paths.entity_config(entity)
    while True:
        znode = await coordination.get(path)
        data = ConfigZnode(config=change(_decoded(znode, entity))).encode()
        try:
            if znode is None:
                await coordination.create(path, data)
            else:
                await coordination.set(path, data, version=znode.version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue
        break
    announcement = ConfigChangeZnode(entity_path=entity)
    await coordination.create(paths.CONFIG_CHANGE_PREFIX, announcement.encode(), sequence=True)


async def announced_changes(coordination: Coordination) -> list[str]:
    """Names of the announcements there are, in order; what else lies there is none."""
    prefix = paths.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
    names = await coordination.children(paths.CONFIG_CHANGES)
    return [name for name in names if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()]


class EntityConfigs:
    """The settings of all entities, and their announced changes, each given in order to the follower of its
    kind.
    """

    def __init__(self, coordination: Coordination, followers: Mapping[str, Follower]) -> None:
        self._coordination = coordination
        self._followers = followers
        self._last = ""
        self._announced = asyncio.Event()

    async def read(self, entity: str) -> dict[str, str]:
        """As `read_entity_config`."""
        return await read_entity_config(self._coordination, entity)

    async def alter(self, entity: str, change: Change) -> None:
        """As `alter_entity_config`; this node's follower knows before the end."""
        await alter_entity_config(self._coordination, entity, change)
        kind, _, name = entity.partition("/")
        if (follower := self._followers.get(kind)) is not None:
            await follower(name)

    async def begin(self) -> None:
        """Follow from here on: who reads settings after this misses no change. Raises CoordinationError."""
        self._last = max(await announced_changes(self._coordination), default="")

    async def run(self) -> None:
        """Follow; ends by cancellation."""
        end_watch = self._coordination.watch_children(paths.CONFIG_CHANGES, self._announced.set)
        try:
            while True:
                await self._announced.wait()
                self._announced.clear()
                try:
                    await self._follow()
                except CoordinationError as error:
                    log.warning("settings_stale", reason=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    self._announced.set()
        finally:
            end_watch()

    async def _follow(self) -> None:
        for name in await announced_changes(self._coordination):
            if name <= self._last:
                continue
            kind, _, entity = (await self._entity(name)).partition("/")
            if (follower := self._followers.get(kind)) is not None:
                await self._tell(follower, entity)
            self._last = name

    async def _tell(self, follower: Follower, entity: str) -> None:
        """Settings that cannot be read keep nobody from those of others. Raises SessionLostError."""
        try:
            await follower(entity)
        except SessionLostError:
            raise
        except CoordinationError as error:
            log.error("config_change_ignored", reason=str(error))

    async def _entity(self, name: str) -> str:
        """What a change is about; empty when that cannot be read."""
        path = f"{paths.CONFIG_CHANGES}/{name}"
        znode = await self._coordination.get(path)
        if znode is None:
            return ""
        try:
            return ConfigChangeZnode.decode(znode.data, path).entity_path
        except CoordinationError as error:
            log.warning("config_change_ignored", reason=str(error))
            return ""


def _decoded(znode: Znode | None, entity: str) -> dict[str, str]:
    if znode is None or not znode.data:
        return {}
    return dict(ConfigZnode.decode(znode.data, paths.entity_config(entity)).config)
