"""How a node stays registered: with every session, and whether or not ZooKeeper's answers reach it."""

from __future__ import annotations

import asyncio

from broker.cluster.entity_configs import EntityConfigs
from broker.config import LoadedConfig, NodeConfig
from broker.coordination import paths
from broker.coordination.memory import MemorySession, MemoryTree
from broker.coordination.protocol import SessionLostError
from broker.live_config import LiveConfig
from broker.presence import Presence
from broker.types import BrokerId
from tests.storage.samples import ManualClock

CONFIG = NodeConfig(broker_id=1, listeners=("PLAINTEXT://127.0.0.1:9001",))
PATH = paths.broker(BrokerId(1))


class ForgetfulSession(MemorySession):
    """Once, the connection is lost after a znode was created and before the client is told."""

    loses_answer = False

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        created = await super().create(path, data, ephemeral=ephemeral, sequence=sequence)
        if self.loses_answer and path == PATH:
            self.loses_answer = False
            self.suspend()
            asyncio.get_running_loop().call_soon(self.resume)
            raise SessionLostError(f"create {path}: the connection to ZooKeeper was lost")
        return created


def test_a_registration_whose_answer_was_lost_gives_the_node_its_broker_epoch() -> None:
    async def scenario() -> None:
        tree = MemoryTree()
        session = ForgetfulSession(tree)
        live = LiveConfig(LoadedConfig(node=CONFIG, given=frozenset()), EntityConfigs(session))
        presence = Presence(live, session, ManualClock(), [])
        epochs: asyncio.Queue[int] = asyncio.Queue()
        async with asyncio.timeout(20), presence.connected():
            before = await presence.register()
            keeping = asyncio.create_task(presence.keep(epochs.put_nowait))
            session.loses_answer = True
            session.expire()
            epoch = await epochs.get()
            registered = tree.get(PATH)
            assert registered is not None
            assert epoch == registered.czxid > before
            keeping.cancel()

    asyncio.run(scenario())
