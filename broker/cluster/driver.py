"""The controller of a cluster as seen by one node: who it is, the election, and this node's own reigns.

The first node to create `/controller` reigns, until its session ends or it is removed; the same transaction
raises `/controller_epoch`, which fences every earlier controller. Every node runs a driver and stands for
election whenever there is no controller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.clock import Clock
from broker.cluster.channel import ControllerIdentity, NodeLink
from broker.cluster.controller_epochs import last_epoch
from broker.cluster.events import (
    ControllerSettings,
    ElectionAsked,
    ElectionKind,
    ReassignmentsAsked,
    ShutdownAsked,
    UncleanDefaultSet,
)
from broker.cluster.registration import create_layout
from broker.cluster.reign import Mandate, Reign
from broker.coordination import paths
from broker.coordination.protocol import (
    BadVersionError,
    Coordination,
    CreateNode,
    NodeExistsError,
    SessionLostError,
    SessionState,
    SetData,
)
from broker.coordination.znodes import ControllerEpochZnode, ControllerZnode
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import NO_LEADER, BrokerId, TopicPartition

DEFAULT_LISTENER = "PLAINTEXT"
_RETRY_SECONDS = 1.0
_FAREWELL_MS = 1_000
"""How long a broker that stops waits at most until the others know of it."""

_log = logger("controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A move under way: all replicas there are for now, those that come, and those that go."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


class ControllerDriver:
    """Stands for election for one node, and reigns when elected. `start` it once the node is registered.

    `heard_epoch` is that of the last controller that the node heard of, -1 for none.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        broker_id: BrokerId,
        link: NodeLink,
        heard_epoch: Callable[[], int],
        clock: Clock,
        settings: ControllerSettings,
        listener: str = DEFAULT_LISTENER,
    ) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._link = link
        self._heard_epoch = heard_epoch
        self._clock = clock
        self._settings = settings
        self._listener = listener
        self._controller_id = NO_LEADER
        self._reign: Reign | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def controller_id(self) -> BrokerId:
        """The controller that this node last heard of, -1 while there is none."""
        return self._controller_id

    @property
    def is_controller(self) -> bool:
        return self._reign is not None

    async def start(self) -> asyncio.Task[None]:
        """Begin in the background; returns the task, which ends only by `close`."""
        self._coordination.on_state(self._session_changed)
        self._task = asyncio.create_task(self._run(), name="controller")
        return self._task

    async def close(self) -> None:
        """Stop, and let another node be elected when this one is the controller."""
        if self._task is None:
            return
        reigned = self.is_controller
        self._is_closing = True  # a task group that meets an error forgets that it was cancelled
        self._changed.set()
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error
        self._task = None
        if reigned:
            await self._resign()

    async def reconfigure(self, settings: ControllerSettings) -> None:
        """Elect by other settings from now on, in a reign that is going on too."""
        unclean = self._settings.unclean_leader_election
        self._settings = settings
        if self._reign is not None and unclean != settings.unclean_leader_election:
            with contextlib.suppress(ProtocolError):  # the next reign begins with them
                await self._reign.ask(UncleanDefaultSet(allowed=settings.unclean_leader_election))

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        """Move what a broker leads elsewhere; returns the replicated partitions that it still leads.

        `broker_epoch` -1 stands for any. Raises ProtocolError NOT_CONTROLLER, BROKER_NOT_AVAILABLE,
        STALE_BROKER_EPOCH.
        """
        reign = self._required_reign()
        broker = reign.machine.brokers.get(broker_id)
        if broker is None:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if broker_epoch not in (-1, broker.epoch):
            raise ProtocolError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has registered again")
        await reign.ask(ShutdownAsked(broker_id=broker_id))
        await reign.delivered(timeout_ms=_FAREWELL_MS)  # or clients would be sent to who is gone
        return reign.machine.led_by(broker_id)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders of these partitions, or of all: preferred replicas, or, `unclean`, any live one.

        Raises ProtocolError NOT_CONTROLLER.
        """
        kind = ElectionKind.UNCLEAN if unclean else ElectionKind.PREFERRED
        asked = None if partitions is None else frozenset(partitions)
        effects = await self._required_reign().ask(ElectionAsked(partitions=asked, kind=kind))
        return dict(effects.elections)

    async def reassign(
        self, targets: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
    ) -> dict[TopicPartition, ProtocolError | None]:
        """Move partitions to other replicas, or, None, cancel moves under way; returns what keeps each from
        being begun. Raises ProtocolError NOT_CONTROLLER.
        """
        effects = await self._required_reign().ask(ReassignmentsAsked(targets=targets))
        return dict(effects.reassignments)

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The moves under way. Raises ProtocolError NOT_CONTROLLER."""
        machine = self._required_reign().machine
        return {
            tp: Reassignment(
                replicas=topic.partitions[tp.partition],
                adding=topic.adding.get(tp.partition, ()),
                removing=topic.removing.get(tp.partition, ()),
            )
            for tp in sorted(machine.moving)
            if (topic := machine.topics.get(tp.topic)) is not None
        }

    def _required_reign(self) -> Reign:
        if self._reign is None:
            raise ProtocolError(ErrorCode.NOT_CONTROLLER)
        return self._reign

    def _session_changed(self, state: SessionState) -> None:
        self._changed.set()

    async def _run(self) -> None:
        end_watch = self._coordination.watch_data(paths.CONTROLLER, self._changed.set)
        try:
            while not self._is_closing:
                self._changed.clear()
                try:
                    mandate = await self._stand()
                    if mandate is not None:
                        await self._rule(mandate)
                        continue
                except SessionLostError:
                    _log.info("controller_election_waits", reason="no ZooKeeper session")
                except CoordinationError as error:
                    _log.error("controller_election_failed", reason=str(error))
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                except Exception:  # noqa: BLE001 - a supervisor: whatever the bug, others shall reign
                    _log.exception("controller_failed")
                    await self._resign()
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                await self._changed.wait()
        finally:
            end_watch()

    async def _stand(self) -> Mandate | None:
        """Be elected if there is no controller; None when another is."""
        znode = await self._coordination.get(paths.CONTROLLER)
        if znode is not None and znode.ephemeral_owner == self._coordination.session_id:
            # An earlier reign of this session ended in doubt: its successor starts from a new epoch.
            await self._coordination.delete(paths.CONTROLLER)
            znode = None
        elif znode is not None and not znode.ephemeral_owner:
            _log.error("controller_znode_removed", reason="no node's session holds it", data=repr(znode.data))
            await self._coordination.delete(paths.CONTROLLER, version=znode.version)
            znode = None
        if znode is not None:
            self._controller_id = ControllerZnode.decode(znode.data, paths.CONTROLLER).broker_id
            return None
        self._controller_id = NO_LEADER
        mandate = await self._elect()
        if mandate is None:
            self._changed.set()
        return mandate

    async def _elect(self) -> Mandate | None:
        """Create `/controller` and raise the epoch in one transaction; None when another node was first."""
        await create_layout(self._coordination)
        znode = await self._coordination.get(paths.CONTROLLER_EPOCH)
        if znode is None:
            try:
                await self._coordination.create(
                    paths.CONTROLLER_EPOCH, ControllerEpochZnode(epoch=0).encode()
                )
            except NodeExistsError:
                return None
            znode = await self._coordination.get(paths.CONTROLLER_EPOCH)
            if znode is None:
                return None
        epoch = await last_epoch(self._coordination, znode, heard=self._heard_epoch()) + 1
        controller = ControllerZnode(broker_id=self._broker_id, timestamp_ms=self._clock.now_ms())
        raised = ControllerEpochZnode(epoch=epoch)
        try:
            _, version = await self._coordination.multi(
                [
                    CreateNode(path=paths.CONTROLLER, data=controller.encode(), ephemeral=True),
                    SetData(path=paths.CONTROLLER_EPOCH, data=raised.encode(), version=znode.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            return None
        identity = ControllerIdentity(broker_id=self._broker_id, epoch=epoch, listener=self._listener)
        return Mandate(identity=identity, epoch_version=version)

    async def _rule(self, mandate: Mandate) -> None:
        self._controller_id = self._broker_id
        _log.info("controller_elected", broker_id=self._broker_id, epoch=mandate.identity.epoch)
        self._reign = Reign(self._coordination, self._link, mandate, self._settings)
        try:
            await self._reign.run()
        finally:
            self._reign = None
            self._controller_id = NO_LEADER

    async def _resign(self) -> None:
        try:
            znode = await self._coordination.get(paths.CONTROLLER)
            if znode is not None and znode.ephemeral_owner == self._coordination.session_id:
                await self._coordination.delete(paths.CONTROLLER)
        except SessionLostError:
            return
