"""Finalized features: what the whole cluster has agreed to do in a newer way, kept in `/feature`.

A node that starts creates the znode where it is missing, with the newest level of every feature: a cluster
that is new has no reason to wait. Where there is one, levels change only when somebody says so. Every node
watches it; a feature that is not there has level 0. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    Coordination,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
)
from broker.coordination.znodes import FeaturesZnode
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.wire.features import TRANSACTION_VERSION

GROUP_VERSION = "group.version"

SUPPORTED: Mapping[str, int] = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
"""The highest level of each feature that this node knows; the lowest is 0."""

UNKNOWN_EPOCH = -1
RETRY_SECONDS = 1.0

_log = logger("features")


class FeatureLevels(Protocol):
    """What is known of the cluster's features."""

    @property
    def levels(self) -> Mapping[str, int]:
        """Those above 0."""
        ...

    @property
    def epoch(self) -> int:
        """Ascends with every change; UNKNOWN_EPOCH where nothing is known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeatures:
    """Implements FeatureLevels for those who are not asked to do anything."""

    levels: Mapping[str, int]
    epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """A level that somebody asks for, and whether it may be lower than it is."""

    feature: str
    level: int
    may_lower: bool


class Features:
    """Implements FeatureLevels out of ZooKeeper."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._changed = asyncio.Event()
        self.levels: Mapping[str, int] = {}
        self.epoch = UNKNOWN_EPOCH

    def level(self, feature: str) -> int:
        """0 where the cluster has not agreed to anything."""
        return self.levels.get(feature, 0)

    async def begin(self) -> None:
        """Know the features, created if need be. Raises CoordinationError."""
        if await self._coordination.get(paths.FEATURES) is None:
            try:
                await self._coordination.create(paths.FEATURES, FeaturesZnode(levels=SUPPORTED).encode())
            except NodeExistsError:
                pass
            else:
                _log.info("features_created", **_keys(SUPPORTED))
        try:
            await self._read()
        except SessionLostError:
            raise
        except CoordinationError as error:  # a node that may do nothing new is better than none
            _log.error("znode_unreadable", reason=str(error))

    async def run(self) -> None:
        """Follow their changes; ends by cancellation."""
        end_watch = self._coordination.watch_data(paths.FEATURES, self._changed.set)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._read()
                except CoordinationError as error:
                    _log.warning("features_not_read", reason=str(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    self._changed.set()
        finally:
            end_watch()

    async def update(self, updates: Iterable[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Have all levels changed, or none. Raises ProtocolError that says which must not,
        CoordinationError.
        """
        wanted = list(updates)
        while True:
            znode = await self._coordination.get(paths.FEATURES)
            levels = {} if znode is None else dict(FeaturesZnode.decode(znode.data, paths.FEATURES).levels)
            for update in wanted:
                require_valid(update, levels.get(update.feature, 0))
                levels[update.feature] = update.level
            if validate_only:
                return
            data = FeaturesZnode(levels=levels).encode()
            try:
                if znode is None:
                    await self._coordination.create(paths.FEATURES, data)
                else:
                    await self._coordination.set(paths.FEATURES, data, version=znode.version)
            except (NodeExistsError, BadVersionError, NoNodeError):
                continue
            await self._read()
            return

    async def _read(self) -> None:
        znode = await self._coordination.get(paths.FEATURES)
        if znode is None:
            return
        levels = FeaturesZnode.decode(znode.data, paths.FEATURES).levels
        if levels != self.levels:
            _log.info("features_known", epoch=znode.version, **_keys(levels))
        self.levels, self.epoch = levels, znode.version


def require_valid(update: FeatureUpdate, level: int) -> None:
    """Raises ProtocolError INVALID_UPDATE_VERSION unless the feature may go from `level` as is asked for."""
    highest = SUPPORTED.get(update.feature)
    if highest is None:
        raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, f"feature {update.feature} is not known")
    if not 0 <= update.level <= highest:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: level {update.level} is not within 0 to {highest}",
        )
    if update.level < level and not update.may_lower:
        raise ProtocolError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: level {update.level} is below {level}, which needs a downgrade",
        )


def _keys(levels: Mapping[str, int]) -> dict[str, int]:
    return {name.replace(".", "_"): level for name, level in levels.items()}
