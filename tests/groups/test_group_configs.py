"""Settings of single groups: what may be set, what holds, and what nodes make of what ZooKeeper has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from broker.cluster.entity_configs import EntityConfigs, alter_entity_config
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.errors import ErrorCode, ProtocolError
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.group_configs import GroupBounds, GroupConfigs, group_entity

DEFAULTS = ConsumerGroupConfig()
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Scene(NamedTuple):
    """A node's view of groups' settings, and the means to change what ZooKeeper has."""

    session: MemorySession
    configs: GroupConfigs

    async def set(self, group_id: str, **settings: str) -> None:
        """As an administrator does on another node; this one hears of it."""
        name = paths.encoded_name(group_id)
        named = {setting.replace("_", "."): value for setting, value in settings.items()}
        await alter_entity_config(self.session, group_entity(name), lambda _: named)
        await self.configs.changed(name)

    def held(self, group_id: str) -> tuple[int, int]:
        """Session timeout and heartbeat interval."""
        config = self.configs.of(group_id)
        return config.session_timeout_ms, config.heartbeat_interval_ms


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    session = MemorySession(MemoryTree())
    await session.start(timeout_ms=1_000)
    try:
        yield Scene(session, GroupConfigs(EntityConfigs(session), DEFAULTS, GroupBounds()))
    finally:
        await session.close()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({SESSION: "44999"}, f"{SESSION}: 44999 is not from 45000 to 60000, the bounds of this node"),
        ({SESSION: "60001"}, f"{SESSION}: 60001 is not from 45000 to 60000, the bounds of this node"),
        ({INTERVAL: "4999"}, f"{INTERVAL}: 4999 is not from 5000 to 15000, the bounds of this node"),
        ({INTERVAL: "15001"}, f"{INTERVAL}: 15001 is not from 5000 to 15000, the bounds of this node"),
        ({SESSION: "soon"}, f"{SESSION}: expected a whole number, not 'soon'"),
        (
            {"consumer.session.timeout": "50000"},
            f"consumer.session.timeout: unknown setting of a group (did you mean {SESSION}?)",
        ),
        (
            {"x": "1", INTERVAL: "0"},
            f"x: unknown setting of a group; {INTERVAL}: expected a whole number from 1 to",
        ),
    ],
)
def test_what_a_group_cannot_be_given_is_refused_with_all_reasons(
    settings: dict[str, str], complaint: str
) -> None:
    async def scenario() -> None:
        async with scene() as at:
            with pytest.raises(ProtocolError) as refused:
                at.configs.require_valid(settings)
            assert refused.value.code is ErrorCode.INVALID_CONFIG
            assert refused.value.message.startswith(complaint)

    asyncio.run(scenario())


def test_a_session_timeout_is_above_the_heartbeat_interval_whichever_of_them_is_set() -> None:
    bounds = GroupBounds(
        heartbeat_interval_max_ms=60_000, session_timeout_min_ms=1, session_timeout_max_ms=100_000
    )
    configs = GroupConfigs(EntityConfigs(MemorySession(MemoryTree())), DEFAULTS, bounds)
    for settings in ({INTERVAL: "45000"}, {SESSION: "5000"}):
        with pytest.raises(ProtocolError, match=f"{SESSION}: .* is not above {INTERVAL}"):
            configs.require_valid(settings)
    configs.require_valid({INTERVAL: "45000", SESSION: "45001"})


@pytest.mark.parametrize("group_id", ["g", "a/b", "..", ".", "Grüße an alle", "<default>", "100%"])
def test_a_group_of_any_name_has_its_settings_until_they_are_taken_back(group_id: str) -> None:
    async def scenario() -> None:
        async with scene() as at:
            await at.set(group_id, consumer_session_timeout_ms="50000")
            assert at.held(group_id) == (50_000, DEFAULTS.heartbeat_interval_ms)
            assert at.configs.overrides(group_id) == {SESSION: "50000"}
            assert at.held("another") == (DEFAULTS.session_timeout_ms, DEFAULTS.heartbeat_interval_ms)
            started_later = GroupConfigs(EntityConfigs(at.session), DEFAULTS, GroupBounds())
            await started_later.load()
            assert started_later.of(group_id) == at.configs.of(group_id)
            await at.set(group_id)
            assert at.configs.of(group_id) is DEFAULTS
            assert at.configs.overrides(group_id) == {}

    asyncio.run(scenario())


def test_settings_out_of_a_nodes_bounds_do_not_hold_there() -> None:
    async def scenario() -> None:
        async with scene() as at:
            await at.set("g", consumer_heartbeat_interval_ms="10000")
            await at.set("g", consumer_heartbeat_interval_ms="60000")
            assert at.configs.of("g") is DEFAULTS

    asyncio.run(scenario())


def test_damaged_settings_leave_the_last_ones_in_force() -> None:
    async def scenario() -> None:
        async with scene() as at:
            await at.set("g", consumer_heartbeat_interval_ms="10000")
            await at.session.set(paths.entity_config("groups/g"), b"{ not JSON")
            await at.configs.changed("g")
            assert at.held("g") == (DEFAULTS.session_timeout_ms, 10_000)

    asyncio.run(scenario())
