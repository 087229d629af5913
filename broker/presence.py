"""A node in ZooKeeper: its session, and its registration with the addresses that clients are told.

Whoever loses the session is registered anew as soon as there is another. Meanwhile the node serves with the
leaders it knows. A note of the session lies in a data directory (`session_notes`), so that a start after
kill -9 need not wait for the old session's timeout. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from broker.clock import Clock
from broker.cluster.registration import register_broker
from broker.cluster.states import leave_isrs
from broker.config import NodeConfig
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError, SessionState
from broker.coordination.znodes import BrokerZnode, Endpoint
from broker.errors import CoordinationError
from broker.live_config import LiveConfig
from broker.server.security import Listener
from broker.session_notes import SessionNotes
from broker.storage.log_directories import LogDirectories
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition

log = logger("node")

RETRY_SECONDS = 1.0
FORMER_SESSION_TIMEOUT_MS = 2_000
"""How long a start tries to end the session of a process that was killed, before it just waits."""


WITHDRAWAL_TIMEOUT_MS = 2_000


class Presence:
    """See the module's description."""

    def __init__(
        self, live: LiveConfig, coordination: Coordination, clock: Clock, listeners: Sequence[Listener]
    ) -> None:
        self._live = live
        self._coordination = coordination
        self._clock = clock
        self._listeners = listeners
        self._session_changed = asyncio.Event()
        self._registered = BrokerZnode(endpoints=())
        self._epoch = -1
        """The broker epoch that the node goes by."""
        self._is_leaving = False
        self._notes: SessionNotes | None = None

    @property
    def _config(self) -> NodeConfig:
        return self._live.loaded.node

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Have a session from entry to exit. Raises CoordinationError."""
        timeout_ms = self._config.zookeeper_connection_timeout_ms or self._config.zookeeper_session_timeout_ms
        self._coordination.on_state(self._state_changed)
        await self._coordination.start(timeout_ms=timeout_ms)
        try:
            yield
        finally:
            await self._coordination.close()

    @contextlib.asynccontextmanager
    async def noted_in(self, directories: LogDirectories, cluster_id: str) -> AsyncIterator[None]:
        """End the session that a killed process left, and note those of this one from now to the exit, which
        must come while the directories are still locked.
        """
        self._notes = notes = SessionNotes(
            directories, zookeeper=self._config.zookeeper_connect, cluster_id=cluster_id
        )
        for key in await asyncio.to_thread(notes.find_former):
            has_ended = await self._coordination.end_session(key, timeout_ms=FORMER_SESSION_TIMEOUT_MS)
            event = "former_session_ended" if has_ended else "former_session_not_ended"
            log.info(event, session_id=f"{key.session_id:#x}")
        try:
            yield
        finally:
            await asyncio.to_thread(notes.remove)

    async def leave_isrs(self, directories: LogDirectories) -> list[TopicPartition]:
        """Before a registration: when records that were acknowledged may be gone from the directories, no
        partition counts on this node any more that can count on another: no partition at all after an end of
        the machine, else those whose logs are short. Returns those that count on it alone
        although it has nothing of them, as an empty disk is in the place of another, while other nodes have
        replicas. Raises CoordinationError, StorageError.
        """
        bereft: list[TopicPartition] = []
        may_be_any = await asyncio.to_thread(directories.may_have_lost)
        short = frozenset() if may_be_any else await asyncio.to_thread(directories.short_logs)
        if may_be_any or short:
            broker_id = BrokerId(self._config.broker_id)
            departure = await leave_isrs(self._coordination, broker_id, only=None if may_be_any else short)
            if departure.left:
                log.warning("in_sync_sets_left", broker_id=broker_id, partitions=len(departure.left))
            if await asyncio.to_thread(directories.may_be_empty):
                bereft = [tp for tp in departure.last if directories.lacks(tp)]
            for tp in bereft:
                log.error("last_in_sync_without_log", partition=str(tp))
        await asyncio.to_thread(directories.note_boot, is_complete=not bereft)
        return bereft

    async def register(self) -> int:
        """Register the node under its id; its broker epoch. Raises CoordinationError, also when another node
        has the id.
        """
        await self._note_session()
        broker_id = BrokerId(self._config.broker_id)
        self._registered = await self._znode()
        self._epoch = await register_broker(
            self._coordination,
            broker_id,
            self._registered,
            session_timeout_ms=self._config.zookeeper_session_timeout_ms,
        )
        log.info("node_registered", broker_id=broker_id, broker_epoch=self._epoch)
        return self._epoch

    async def keep(self, on_registered: Callable[[int], None]) -> None:
        """Register anew after every loss of the session, each time with a new broker epoch, and when somebody
        removed the registration or wrote over it; for ever.
        """
        path = paths.broker(BrokerId(self._config.broker_id))
        self._coordination.watch_data(path, self._session_changed.set)
        while True:
            await self._session_changed.wait()
            self._session_changed.clear()
            try:
                if not self._is_leaving:
                    await self._renew(path, on_registered)
            except SessionLostError:
                continue  # the connection's return is told
            except CoordinationError as error:
                log.warning("registration_delayed", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._session_changed.set()

    async def _renew(self, path: str, on_registered: Callable[[int], None]) -> None:
        """Register unless the node is: by a registration, perhaps, whose answer was lost. Raises
        CoordinationError.
        """
        held = await self._held_epoch(path)
        if held is None:
            on_registered(await self.register())
        elif held != self._epoch:
            self._epoch = held
            log.info("registration_found", broker_id=self._config.broker_id, broker_epoch=held)
            on_registered(held)

    async def withdraw(self) -> None:
        """End the registration for good: leaders take the node out of their in-sync sets while it still
        follows them, so that nobody waits for it. Without ZooKeeper it ends with the session.
        """
        self._is_leaving = True
        path = paths.broker(BrokerId(self._config.broker_id))
        with contextlib.suppress(CoordinationError, TimeoutError):
            async with asyncio.timeout(WITHDRAWAL_TIMEOUT_MS / 1000):
                if await self._held_epoch(path) is not None:
                    await self._coordination.delete(path)

    async def _held_epoch(self, path: str) -> int | None:
        """The broker epoch of this session's registration, None where there is none. Raises
        CoordinationError.
        """
        znode = await self._coordination.get(path)
        if znode is None or znode.ephemeral_owner != self._coordination.session_id:
            return None
        return znode.czxid if znode.data == self._registered.encode() else None

    async def _note_session(self) -> None:
        key = self._coordination.session_key
        if self._notes is not None and key is not None:
            await asyncio.to_thread(self._notes.write, key)

    async def _znode(self) -> BrokerZnode:
        """Looks names up, in a thread."""
        advertised = await asyncio.to_thread(lambda: self._config.listener_texts.told)
        ports = {listener.name: listener.address.port for listener in self._listeners}
        return BrokerZnode(
            endpoints=tuple(
                Endpoint(
                    listener=listener.name,
                    host=listener.address.host,
                    port=listener.address.port or ports[listener.name],
                    security_protocol=listener.protocol.value,
                )
                for listener in advertised
            ),
            rack=self._config.broker_rack,
            timestamp_ms=self._clock.now_ms(),
        )

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._session_changed.set()
        elif state is SessionState.LOST:
            log.warning("session_lost", broker_id=self._config.broker_id)
