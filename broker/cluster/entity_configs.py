"""Settings that ZooKeeper holds: of topics, nodes and whatever else has any, each kind below `/config`.

An entity is named by its path there: `topics/T`, `brokers/1`, `brokers/<default>` for all nodes. A change is
written conditionally, so that two who change different settings at once lose neither, and then announced
under `/config/changes`, where every node follows it. Settings that cannot be read are watched instead: they
are likely to be put right by hand, which nobody announces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

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
    """The settings of all entities, and their changes, each given in order to the follower of its kind.

    Owned by the event loop.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._followers: Mapping[str, Follower] = {}
        self._last = ""
        self._unreadable: dict[str, Callable[[], None]] = {}
        """What ends the watch of each."""
        self._changed: set[str] = set()
        """Those among them that have changed since."""
        self._woken = asyncio.Event()

    async def names(self, kind: str) -> list[str]:
        """The entities of a kind, or what else is below a path in `/config`, that have settings."""
        return await self._coordination.children(paths.entity_config(kind))

    async def read(self, entity: str) -> dict[str, str]:
        """As `read_entity_config`."""
        return await read_entity_config(self._coordination, entity)

    async def readable(self, entity: str) -> dict[str, str] | None:
        """As `read`, but None where the znode is damaged: it is logged, and the follower is told when it
        changes. Raises CoordinationError.
        """
        path = paths.entity_config(entity)
        znode = await self._coordination.get(path)
        try:
            config = _decoded(znode, entity)
        except CoordinationError as error:
            if entity not in self._unreadable:
                self._unreadable[entity] = self._coordination.watch_data(path, partial(self._mark, entity))
                return await self.readable(entity)  # it may have changed before it was watched
            log.error("entity_config_unreadable", path=path, reason=str(error))
            return None
        if (end_watch := self._unreadable.pop(entity, None)) is not None:
            end_watch()
        return config

    def _mark(self, entity: str) -> None:
        self._changed.add(entity)
        self._woken.set()

    async def alter(self, entity: str, change: Change) -> None:
        """As `alter_entity_config`; this node's follower knows before the end."""
        await alter_entity_config(self._coordination, entity, change)
        kind, _, name = entity.partition("/")
        if (follower := self._followers.get(kind)) is not None:
            await follower(name)

    async def begin(self, followers: Mapping[str, Follower]) -> None:
        """Have followers, by the kind of their entities, told of changes from here on: who reads settings
        after this misses none. Raises CoordinationError.
        """
        self._followers = followers
        self._last = max(await announced_changes(self._coordination), default="")

    async def run(self) -> None:
        """Follow; ends by cancellation."""
        end_watch = self._coordination.watch_children(paths.CONFIG_CHANGES, self._woken.set)
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                try:
                    await self._follow()
                except CoordinationError as error:
                    log.warning("settings_stale", reason=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    self._woken.set()
        finally:
            end_watch()

    async def _follow(self) -> None:
        for name in await announced_changes(self._coordination):
            if name > self._last:
                await self._tell(await self._entity(name))
                self._last = name
        for entity in sorted(self._changed):
            self._changed.discard(entity)
            try:
                await self._tell(entity)
            except SessionLostError:
                self._changed.add(entity)
                raise

    async def _tell(self, entity: str) -> None:
        """Settings that are refused keep nobody from those of others. Raises SessionLostError."""
        kind, _, name = entity.partition("/")
        if (follower := self._followers.get(kind)) is None:
            return
        try:
            await follower(name)
        except SessionLostError:
            raise
        except CoordinationError as error:
            log.error("config_change_ignored", entity=entity, reason=str(error))

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
