"""One controller epoch: from the election to the loss of the session or to a successor.

A reign owns a `ControllerMachine`. It looks at ZooKeeper when watches say so (levels, never single
changes), hands what it read to the machine, performs its effects and delivers orders through a channel per
broker. Every write is one multi that also checks the version of `/controller_epoch`: after a successor was
elected nothing of this reign can be written any more. A write whose outcome is unknown ends the reign,
since the next one reads everything anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from broker.cluster.asked_moves import AskedMoves, Moves
from broker.cluster.channel import BrokerChannel, ControllerFencedError, ControllerIdentity, NodeLink
from broker.cluster.controller import ControllerMachine
from broker.cluster.events import (
    BalanceDue,
    BrokersRead,
    ControllerEffects,
    ControllerSettings,
    DeletionsRead,
    DirectoriesFailed,
    ElectionAsked,
    ElectionKind,
    Event,
    ReassignmentsAsked,
    ReplicasDeleted,
    ReplicasLost,
    SnapshotRead,
    StatesRead,
    TopicsRead,
    UncleanRead,
    broker_steps,
)
from broker.cluster.fenced_writes import FencedWrites
from broker.cluster.image import BrokerInfo
from broker.cluster.notices import failing_broker, partition_list
from broker.cluster.states import (
    read_brokers,
    read_states,
    read_topics,
    sole_coordination_error,
)
from broker.cluster.topic_ids import with_ids
from broker.cluster.unclean_configs import UncleanConfigs
from broker.coordination import paths
from broker.coordination.protocol import Coordination, SessionLostError
from broker.coordination.znodes import ControllerZnode, TopicZnode
from broker.errors import CoordinationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import BrokerId, TopicPartition

REQUESTS_WAITING_MAX = 1_000

_log = logger("controller")


class _Look(Enum):
    """What a watch asks to look at again, in the order in which it is done."""

    CONTROLLER = auto()
    BROKERS = auto()
    TOPICS = auto()
    STATES = auto()
    DELETIONS = auto()
    ISR_CHANGES = auto()
    LOG_DIR_EVENTS = auto()
    CONFIG_CHANGES = auto()
    PREFERRED_ELECTION = auto()
    ASKED_MOVES = auto()
    BALANCE = auto()


_LOOKS_AFTER_ELECTION = (
    _Look.ISR_CHANGES,
    _Look.LOG_DIR_EVENTS,
    _Look.PREFERRED_ELECTION,
    _Look.ASKED_MOVES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """What an election gave: the identity with its epoch, and the version of the znode that holds the
    epoch.
    """

    identity: ControllerIdentity
    epoch_version: int


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    event: Event
    effects: asyncio.Future[ControllerEffects]


class Reign:
    """The controller's work in one epoch; `run` it until it ends."""

    def __init__(
        self, coordination: Coordination, link: NodeLink, mandate: Mandate, settings: ControllerSettings
    ) -> None:
        self._coordination = coordination
        self._link = link
        self._mandate = mandate
        self._settings = settings
        self._machine = ControllerMachine(
            controller_id=mandate.identity.broker_id,
            controller_epoch=mandate.identity.epoch,
            settings=settings,
        )
        self._writes = FencedWrites(coordination, mandate.epoch_version)
        self._asked_moves = AskedMoves(coordination)
        self._channels: dict[BrokerId, tuple[BrokerChannel, asyncio.Task[None]]] = {}
        self._looks: set[_Look] = set()
        self._topic_names: set[str] = set()
        self._dirty_topics: set[str] = set()
        self._topic_watches: dict[str, Callable[[], None]] = {}
        self._dirty_states: set[TopicPartition] = set()
        self._state_watches: dict[TopicPartition, Callable[[], None]] = {}
        """Of those that cannot be read."""
        self._requests: deque[_Request] = deque()
        self._deleted: dict[BrokerId, frozenset[TopicPartition]] = {}
        self._lost: dict[BrokerId, frozenset[TopicPartition]] = {}
        self._unclean = UncleanConfigs(coordination, lambda: self._mark(_Look.CONFIG_CHANGES))
        self._woken = asyncio.Event()
        self._balance_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Reign until fenced, removed, or the session or connection is lost; then return.

        Raises CoordinationError when ZooKeeper refuses something that cannot be explained so.
        """
        watches = self._start_watches()
        self._schedule_balancing()
        try:
            async with asyncio.TaskGroup() as group:
                await self._apply(await self._read_snapshot(), group)
                _log.info("controller_ready", epoch=self._mandate.identity.epoch)
                while True:
                    await self._woken.wait()
                    self._woken.clear()
                    await self._look_again(group)
                    await self._serve(group)
        except BaseExceptionGroup as errors:
            end = sole_coordination_error(errors)
            if not isinstance(end, ControllerFencedError | SessionLostError):
                raise end from errors
            _log.warning("controller_resigned", reason=str(end))
        finally:
            for end_watch in (*watches, *self._topic_watches.values(), *self._state_watches.values()):
                end_watch()
            self._unclean.close()
            if self._balance_timer is not None:
                self._balance_timer.cancel()
            self._refuse_requests()

    async def ask(self, event: Event) -> ControllerEffects:
        """Have an event handled and performed. Raises ProtocolError NOT_CONTROLLER when the reign ends
        before.
        """
        if len(self._requests) >= REQUESTS_WAITING_MAX:
            raise ProtocolError(ErrorCode.NOT_CONTROLLER, "too many requests wait for the controller")
        request = _Request(event, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._woken.set()
        return await request.effects

    async def delivered(self, *, timeout_ms: int) -> None:
        """Return once every live broker has carried out what it was told, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                for channel, _ in list(self._channels.values()):
                    await channel.delivered()

    @property
    def machine(self) -> ControllerMachine:
        """For questions only."""
        return self._machine

    # Looking

    def _start_watches(self) -> list[Callable[[], None]]:
        watch_data, watch_children = self._coordination.watch_data, self._coordination.watch_children
        return [
            watch_data(paths.CONTROLLER, lambda: self._mark(_Look.CONTROLLER)),
            watch_children(paths.BROKER_IDS, lambda: self._mark(_Look.BROKERS)),
            watch_children(paths.TOPICS, lambda: self._mark(_Look.TOPICS)),
            watch_children(paths.DELETE_TOPICS, lambda: self._mark(_Look.DELETIONS)),
            watch_children(paths.ISR_CHANGES, lambda: self._mark(_Look.ISR_CHANGES)),
            watch_children(paths.LOG_DIR_EVENTS, lambda: self._mark(_Look.LOG_DIR_EVENTS)),
            watch_children(paths.CONFIG_CHANGES, lambda: self._mark(_Look.CONFIG_CHANGES)),
            watch_data(paths.PREFERRED_REPLICA_ELECTION, lambda: self._mark(_Look.PREFERRED_ELECTION)),
            watch_data(paths.REASSIGN_PARTITIONS, lambda: self._mark(_Look.ASKED_MOVES)),
        ]

    def _schedule_balancing(self) -> None:
        if self._settings.auto_leader_rebalance:
            interval_seconds = self._settings.leader_imbalance_check_interval_ms / 1000
            self._balance_timer = asyncio.get_running_loop().call_later(
                interval_seconds, self._mark, _Look.BALANCE
            )

    def _mark(self, look: _Look) -> None:
        self._looks.add(look)
        self._woken.set()

    def _mark_topic(self, name: str) -> None:
        self._dirty_topics.add(name)
        self._mark(_Look.TOPICS)

    def _mark_state(self, tp: TopicPartition) -> None:
        self._dirty_states.add(tp)
        self._mark(_Look.STATES)

    async def _look_again(self, group: asyncio.TaskGroup) -> None:
        looks, self._looks = self._looks, set()
        if _Look.DELETIONS in looks:
            looks.add(_Look.TOPICS)
        views = {
            _Look.CONTROLLER: self._look_at_controller,
            _Look.BROKERS: self._look_at_brokers,
            _Look.TOPICS: self._look_at_topics,
            _Look.STATES: self._look_at_unreadable_states,
            _Look.DELETIONS: self._look_at_deletions,
            _Look.ISR_CHANGES: self._look_at_isr_changes,
            _Look.LOG_DIR_EVENTS: self._look_at_log_dir_events,
            _Look.CONFIG_CHANGES: self._look_at_config_changes,
            _Look.PREFERRED_ELECTION: self._look_at_preferred_election,
            _Look.ASKED_MOVES: self._look_at_asked_moves,
            _Look.BALANCE: self._balance,
        }
        for look in _Look:
            if look in looks:
                await views[look](group)

    async def _read_snapshot(self) -> SnapshotRead:
        deletions = frozenset(await self._coordination.children(paths.DELETE_TOPICS))
        self._topic_names = set(await self._coordination.children(paths.TOPICS))
        topics = await self._read_watched_topics(self._topic_names)
        partitions = [TopicPartition(name, p) for name, topic in topics.items() for p in topic.partitions]
        reading = await read_states(self._coordination, partitions)
        await self._unclean.load()
        for look in _LOOKS_AFTER_ELECTION:
            self._mark(look)
        return SnapshotRead(
            brokers=await read_brokers(self._coordination),
            topics=topics,
            states=reading.states,
            deletions=deletions,
            unclean=self._unclean.allowed,
            unreadable=reading.unreadable,
        )

    async def _look_at_controller(self, group: asyncio.TaskGroup) -> None:
        znode = await self._coordination.get(paths.CONTROLLER)
        if znode is None or znode.ephemeral_owner != self._coordination.session_id:
            raise ControllerFencedError(f"{paths.CONTROLLER} is not this node's any more")
        try:
            named = ControllerZnode.decode(znode.data, paths.CONTROLLER).broker_id
        except CoordinationError as error:
            raise ControllerFencedError(str(error)) from error
        if named != self._mandate.identity.broker_id:
            raise ControllerFencedError(f"{paths.CONTROLLER} was overwritten: it names broker {named}")

    async def _look_at_brokers(self, group: asyncio.TaskGroup) -> None:
        brokers = await read_brokers(self._coordination)
        for step in broker_steps(self._machine.brokers, brokers):
            await self._apply(BrokersRead(brokers=step), group)

    async def _look_at_topics(self, group: asyncio.TaskGroup) -> None:
        dirty, self._dirty_topics = self._dirty_topics, set()
        names = self._topic_names = set(await self._coordination.children(paths.TOPICS))
        known = self._machine.topics.keys()
        topics = await self._read_watched_topics(names & (dirty | (names - known)))
        await self._apply(TopicsRead(topics=topics, gone=frozenset(known - names)), group)

    async def _read_watched_topics(self, names: Iterable[str]) -> dict[str, TopicZnode]:
        """Watched first, so that no change falls between."""
        wanted = sorted(names)
        for name in wanted:
            self._watch_topic(name)
        return await with_ids(await read_topics(self._coordination, wanted), self._writes)

    async def _look_at_unreadable_states(self, group: asyncio.TaskGroup) -> None:
        dirty, self._dirty_states = self._dirty_states, set()
        await self._read_states(dirty & self._machine.unreadable, group)

    async def _read_states(self, partitions: Iterable[TopicPartition], group: asyncio.TaskGroup) -> None:
        reading = await read_states(self._coordination, sorted(partitions))
        await self._apply(StatesRead(states=reading.states, unreadable=reading.unreadable), group)

    async def _look_at_deletions(self, group: asyncio.TaskGroup) -> None:
        names = await self._coordination.children(paths.DELETE_TOPICS)
        await self._apply(DeletionsRead(topics=frozenset(names)), group)

    async def _look_at_isr_changes(self, group: asyncio.TaskGroup) -> None:
        names = await self._coordination.children(paths.ISR_CHANGES)
        changed: set[TopicPartition] = set()
        for name in names:
            path = f"{paths.ISR_CHANGES}/{name}"
            changed |= await partition_list(self._coordination, path)
        if changed:
            await self._read_states(changed, group)
        for name in names:
            await self._coordination.delete(f"{paths.ISR_CHANGES}/{name}", recursive=True)

    async def _look_at_log_dir_events(self, group: asyncio.TaskGroup) -> None:
        names = await self._coordination.children(paths.LOG_DIR_EVENTS)
        brokers = [await failing_broker(self._coordination, name) for name in names]
        if failing := frozenset(broker_id for broker_id in brokers if broker_id is not None):
            await self._apply(DirectoriesFailed(brokers=failing), group)
        for name in names:
            await self._coordination.delete(f"{paths.LOG_DIR_EVENTS}/{name}", recursive=True)

    async def _look_at_config_changes(self, group: asyncio.TaskGroup) -> None:
        if await self._unclean.look():
            await self._apply(UncleanRead(unclean=self._unclean.allowed), group)

    async def _look_at_preferred_election(self, group: asyncio.TaskGroup) -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        partitions = await partition_list(self._coordination, path)
        if partitions:
            asked = ElectionAsked(partitions=frozenset(partitions), kind=ElectionKind.PREFERRED)
            await self._apply(asked, group)
        await self._coordination.delete(path, recursive=True)

    async def _look_at_asked_moves(self, group: asyncio.TaskGroup) -> None:
        async def begin(moves: Moves) -> Mapping[TopicPartition, ProtocolError | None]:
            return (await self._apply(ReassignmentsAsked(targets=moves), group)).reassignments

        await self._asked_moves.look(lambda: self._machine.topics, begin)

    async def _balance(self, group: asyncio.TaskGroup) -> None:
        self._schedule_balancing()
        await self._apply(BalanceDue(), group)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        deleted, self._deleted = self._deleted, {}
        for broker_id, partitions in deleted.items():
            await self._apply(ReplicasDeleted(broker_id=broker_id, partitions=partitions), group)
        lost, self._lost = self._lost, {}
        for broker_id, partitions in lost.items():
            await self._apply(ReplicasLost(broker_id=broker_id, partitions=partitions), group)
        while self._requests:
            request = self._requests[0]
            effects = await self._apply(request.event, group)
            self._requests.popleft()
            if not request.effects.done():
                request.effects.set_result(effects)

    def _refuse_requests(self) -> None:
        for request in self._requests:
            if not request.effects.done():
                request.effects.set_exception(ProtocolError(ErrorCode.NOT_CONTROLLER))
        self._requests.clear()

    # Performing

    async def _apply(self, event: Event, group: asyncio.TaskGroup) -> ControllerEffects:
        effects = self._machine.handle(event)
        while effects.writes or effects.topic_writes:
            done = (
                await self._writes.write_states(effects.writes)
                if effects.writes
                else await self._writes.write_topics(effects.topic_writes)
            )
            effects = self._machine.handle(done)
        self._follow_brokers(group)
        self._follow_topics()
        self._follow_unreadable_states()
        if self._asked_moves.have_ended(self._machine.topics):
            self._mark(_Look.ASKED_MOVES)
        for broker_id, orders in effects.orders.items():
            self._channels[broker_id][0].tell(orders)
        for name in effects.erased:
            await self._writes.erase_topic(name)
            _log.info("topic_deleted", topic=name)
        for name in effects.dismissed:
            await self._coordination.delete(paths.delete_topic(name), recursive=True)
        return effects

    def _follow_brokers(self, group: asyncio.TaskGroup) -> None:
        """One channel for every registration there is."""
        brokers = self._machine.brokers
        for broker_id in self._channels.keys() - brokers.keys():
            self._channels.pop(broker_id)[1].cancel()
        for broker_id in brokers.keys() - self._channels.keys():
            channel = BrokerChannel(
                brokers[broker_id],
                self._link,
                self._mandate.identity,
                brokers=self._live_brokers,
                replicas_deleted=self._note_deleted,
                replicas_lost=self._note_lost,
            )
            self._channels[broker_id] = channel, group.create_task(channel.run())

    def _live_brokers(self) -> Mapping[BrokerId, BrokerInfo]:
        return self._machine.brokers

    def _note_deleted(self, broker_id: BrokerId, partitions: frozenset[TopicPartition]) -> None:
        self._deleted[broker_id] = self._deleted.get(broker_id, frozenset()) | partitions
        self._woken.set()

    def _note_lost(self, broker_id: BrokerId, partitions: frozenset[TopicPartition]) -> None:
        self._lost[broker_id] = self._lost.get(broker_id, frozenset()) | partitions
        self._woken.set()

    def _follow_topics(self) -> None:
        topics = self._machine.topics
        for name in self._topic_watches.keys() - topics.keys() - self._topic_names:
            self._topic_watches.pop(name)()
        for name in topics.keys() - self._topic_watches.keys():
            self._watch_topic(name)

    def _follow_unreadable_states(self) -> None:
        """Somebody may put them right; watched first, so that this is seen if it was done meanwhile."""
        unreadable = self._machine.unreadable
        for tp in self._state_watches.keys() - unreadable:
            self._state_watches.pop(tp)()
        for tp in unreadable - self._state_watches.keys():
            self._state_watches[tp] = self._coordination.watch_data(
                paths.partition_state(tp), partial(self._mark_state, tp)
            )
            self._mark_state(tp)

    def _watch_topic(self, name: str) -> None:
        if name not in self._topic_watches:
            self._topic_watches[name] = self._coordination.watch_data(
                paths.topic(name), lambda: self._mark_topic(name)
            )
