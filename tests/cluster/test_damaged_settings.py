"""Settings in ZooKeeper that cannot be read: those of others hold, and they are taken up once put right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from broker.cluster.client_quotas import Component, EntityType, Quota
from broker.cluster.entity_configs import EntityConfigs
from broker.config import LoadedConfig, NodeConfig
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.znodes import ConfigZnode
from broker.live_config import LiveConfig
from broker.rates import RateWindows
from broker.replication.topic_configs import TopicConfigs
from broker.server.quotas import Quotas
from broker.storage.log_config import LogConfig

NODE = NodeConfig(broker_id=3, listeners=("PLAINTEXT://127.0.0.1:9001",))
DAMAGES = (b"garbage", b"[]", b'{"version":1,"config":5}')


@dataclass
class Scene:
    """What a node makes of the settings in ZooKeeper."""

    admin: MemorySession
    quotas: Quotas
    live: LiveConfig
    topics: TopicConfigs
    told: asyncio.Event

    async def put(self, entity: str, data: bytes) -> None:
        path = f"/config/{entity}"
        if await self.admin.get(path) is None:
            await self.admin.create(path, data)
        else:
            await self.admin.set(path, data)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.told.clear()
                await self.told.wait()

    def rate(self, client_id: str) -> float | None:
        applied = self.quotas.table.of_client(Quota.PRODUCER_BYTE_RATE, "user", client_id)
        return None if applied is None else applied.bound

    @property
    def cleaner_threads(self) -> int:
        return self.live.loaded.node.log_cleaner_threads


@asynccontextmanager
async def scene(tree: MemoryTree) -> AsyncIterator[Scene]:
    """A node that starts, and follows changes until the end."""
    session, admin = MemorySession(tree), MemorySession(tree)
    for each in (session, admin):
        await each.start(timeout_ms=1_000)
    told = asyncio.Event()
    configs = EntityConfigs(session)
    quotas = Quotas(RateWindows(), lambda: 0)
    live = LiveConfig(LoadedConfig(node=NODE, given=frozenset()), configs)
    topics = TopicConfigs(configs, LogConfig(), on_change=lambda *_: None)

    def telling(follower: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
        async def tell(entity: str) -> None:
            await follower(entity)
            told.set()

        return tell

    followers = {"topics": topics.changed, "brokers": live.changed, **quotas.followers(configs)}
    await configs.begin({kind: telling(follower) for kind, follower in followers.items()})
    await live.load()
    await quotas.load(configs)
    await topics.load()
    run = asyncio.create_task(configs.run())
    try:
        yield Scene(admin, quotas, live, topics, told)
    finally:
        run.cancel()
        await asyncio.wait([run])
        for each in (session, admin):
            await each.close()


def settings(**config: str) -> bytes:
    return ConfigZnode(config={name.replace("_", "."): value for name, value in config.items()}).encode()


RATE = ConfigZnode(config={"producer_byte_rate": "5"}).encode()
CLIENT = (Component(EntityType.CLIENT_ID, "c"),)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_settings_of_any_kind_let_a_node_start_and_are_taken_up_when_put_right(damage: bytes) -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        admin = MemorySession(tree)
        await admin.start(timeout_ms=1_000)
        damaged = ("brokers/3", "brokers/<default>", "clients/c", "users/u/clients/d", "ips/i", "topics/t")
        for entity in damaged:
            await admin.create(f"/config/{entity}", damage)
        await admin.create("/config/clients/well", RATE)
        with capture_logs() as logs:
            async with scene(tree) as node:
                assert (node.rate("c"), node.rate("well")) == (None, 5.0)
                assert node.topics.of("t").retention_ms == -1
                await node.put("clients/c", RATE)
                await node.until(lambda: node.rate("c") == 5.0)
                await node.put("brokers/3", settings(log_cleaner_threads="3"))
                await node.until(lambda: node.cleaner_threads == 3)
                await node.put("brokers/<default>", settings(log_cleaner_threads="2", num_io_threads="9"))
                await node.until(lambda: node.live.loaded.node.num_io_threads == 9)
                assert node.cleaner_threads == 3
                await node.put("topics/t", settings(retention_ms="7"))
                await node.until(lambda: node.topics.of("t").retention_ms == 7)
        told = {event["path"] for event in logs if event["event"] == "entity_config_unreadable"}
        assert told == {f"/config/{entity}" for entity in damaged}
        await admin.close()

    asyncio.run(scenario())


def test_settings_that_are_damaged_while_a_node_runs_hold_until_they_are_put_right() -> None:
    async def scenario() -> None:
        async with scene(MemoryTree()) as node:
            alterations = EntityConfigs(node.admin)
            await alterations.alter("clients/c", lambda _: {"producer_byte_rate": "5"})
            await alterations.alter("brokers/3", lambda _: {"log.cleaner.threads": "3"})
            await node.until(lambda: node.rate("c") == 5.0 and node.cleaner_threads == 3)
            for entity in ("clients/c", "brokers/3"):
                await node.put(entity, b"garbage")
                await node.admin.create(
                    "/config/changes/config_change_",
                    b'{"version":2,"entity_path":"%s"}' % entity.encode(),
                    sequence=True,
                )
            await alterations.alter("clients/d", lambda _: {"producer_byte_rate": "6"})
            await node.until(lambda: node.rate("d") == 6.0)
            assert (node.rate("c"), node.cleaner_threads) == (5.0, 3)
            await node.put("clients/c", b"garbage of another kind")
            await node.admin.delete("/config/clients/c")
            await node.put("brokers/3", settings(log_cleaner_threads="4"))
            await node.until(lambda: node.rate("c") is None and node.cleaner_threads == 4)

    asyncio.run(scenario())
