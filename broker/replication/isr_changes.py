"""In-sync sets as this node's leaders write them to ZooKeeper: who lags leaves, who caught up joins.

`Partition` proposes a change and counts it while it is under way; this reads whether those that join are
still registered as they were when they fetched (KIP-903), writes the state on condition that nobody else did,
and tells the machine what became of it. A write whose outcome is unknown is written again when ZooKeeper is
back; one that was refused is explained by what is read then: this leader's own earlier write, or another's,
after which an order of the controller comes. Changes that were written are announced to the controller, many
at a time, so that every node hears of them. All of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.clock import Clock
from broker.cluster.states import announce_isr_changes, in_flight, read_states, write_isr
from broker.coordination import paths
from broker.coordination.protocol import BadVersionError, Coordination, NoNodeError, SessionState
from broker.coordination.znodes import PartitionStateZnode
from broker.errors import CoordinationError
from broker.replication.follower_progress import LagBounds
from broker.replication.partition import IsrChange
from broker.replication.replica import Replica
from broker.telemetry import logger
from broker.types import BrokerId, LeaderEpoch, TopicPartition

JOIN_LINGER_SECONDS = 0.005
"""Followers catch up in many partitions at once: their joining is written together."""
FRUITLESS_LINGER_SECONDS = 0.2
"""As long when the last look led to nothing: a follower may be about to register anew."""
ANNOUNCEMENT_LINGER_SECONDS = 0.1
RETRY_SECONDS = 1.0
_LOOK_SLICE_COUNT = 500
"""Partitions that are looked at before others get their turn on the event loop."""

log_event = logger("replica")


class IsrChanges:
    """The changes of a node's in-sync sets; `run` works for ever."""

    def __init__(
        self, replicas: Iterable[Replica], coordination: Coordination, *, clock: Clock, bounds: LagBounds
    ) -> None:
        self._replicas = replicas
        self._coordination = coordination
        self._clock = clock
        self.bounds = bounds
        self.shrunk_count = 0
        self.expanded_count = 0
        self._due: dict[Replica, None] = {}
        self._is_due = asyncio.Event()
        self._is_connected = True
        self._unannounced: set[TopicPartition] = set()
        self._has_unannounced = asyncio.Event()

    def consider(self, replica: Replica) -> None:
        """See soon whether the in-sync set of a partition is to change."""
        self._due[replica] = None
        if self._is_connected:
            self._is_due.set()

    def fetched(self, replica: Replica, follower: BrokerId) -> None:
        """A follower's fetch was taken in: it may join now, or have to leave."""
        if replica.machine.needs_change(follower, self.bounds):
            self.consider(replica)

    async def run(self) -> None:
        """Look for laggards, write what is due, and announce it; ends by cancellation."""
        self._coordination.on_state(self._state_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_for_laggards())
            tasks.create_task(self._announce())
            linger_seconds = JOIN_LINGER_SECONDS
            while True:
                await self._is_due.wait()
                await asyncio.sleep(linger_seconds)
                self._is_due.clear()
                is_fruitful = self._is_connected and await self._change_due()
                linger_seconds = JOIN_LINGER_SECONDS if is_fruitful else FRUITLESS_LINGER_SECONDS

    async def look_for_laggards(self) -> None:
        """Have those leave that were not caught up for too long."""
        now_ms = self._clock.monotonic_ms()
        for count, replica in enumerate(self._replicas):
            if count % _LOOK_SLICE_COUNT == _LOOK_SLICE_COUNT - 1:
                await asyncio.sleep(0)
            machine = replica.machine
            if not machine.has_followers:
                continue
            before = machine.high_watermark
            if machine.give_up_waiting(self.bounds, now_ms=now_ms):
                replica.committed_since(before)
            if machine.laggards(self.bounds, now_ms=now_ms):
                self.consider(replica)

    async def _look_for_laggards(self) -> None:
        while True:
            await asyncio.sleep(self.bounds.time_ms / 2 / 1000)
            await self.look_for_laggards()

    async def _change_due(self) -> bool:
        """Write what the partitions that are due propose; False when none proposes anything."""
        due, self._due = self._due, {}
        candidates = {replica: replica.machine.candidates(self.bounds) for replica in due}
        epochs = await self._read_epochs({broker for found in candidates.values() for broker in found})
        now_ms = self._clock.monotonic_ms()
        changes: dict[Replica, IsrChange] = {}
        for replica in due:
            machine = replica.machine
            change = machine.propose(
                joining=[
                    follower
                    for follower, epoch in candidates[replica].items()
                    if epochs.get(follower) == epoch
                ],
                leaving=machine.laggards(self.bounds, now_ms=now_ms),
                bounds=self.bounds,
            )
            if change is not None:
                changes[replica] = change

        async def write(replica: Replica) -> None:
            await self._write(replica, changes[replica])

        await in_flight(list(changes), write)
        return bool(changes)

    async def _read_epochs(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, int]:
        """The broker epochs of those that are registered; nobody's while ZooKeeper is away."""
        epochs = {}
        for broker in sorted(brokers):
            try:
                znode = await self._coordination.get(paths.broker(broker))
            except CoordinationError:
                break
            if znode is not None:
                epochs[broker] = znode.czxid
        return epochs

    async def _write(self, replica: Replica, change: IsrChange) -> None:
        machine = replica.machine
        state = PartitionStateZnode(
            controller_epoch=machine.assignment.controller_epoch,
            leader=machine.local,
            leader_epoch=change.leader_epoch,
            isr=change.isr,
        )
        try:
            version = await write_isr(
                self._coordination, machine.topic_partition, state, change.partition_epoch
            )
            self._written(replica, change.isr, version, change.leader_epoch)
        except (BadVersionError, NoNodeError):
            await self._explain_refusal(replica, change)
        except CoordinationError as error:
            self._write_again_later(replica, error)

    async def _explain_refusal(self, replica: Replica, change: IsrChange) -> None:
        machine = replica.machine
        tp = machine.topic_partition
        try:
            stored = (await read_states(self._coordination, [tp])).states.get(tp)
        except CoordinationError as error:
            self._write_again_later(replica, error)
            return
        own = (machine.local, change.leader_epoch)
        if stored is not None and (stored.state.leader, stored.state.leader_epoch) == own:
            self._written(replica, stored.state.isr, stored.version, change.leader_epoch)
        else:
            machine.isr_superseded(change)
            log_event.info("isr_superseded", partition=str(tp), leader_epoch=change.leader_epoch)

    def _written(
        self, replica: Replica, isr: tuple[BrokerId, ...], version: int, leader_epoch: LeaderEpoch
    ) -> None:
        machine = replica.machine
        former, before = machine.isr, machine.high_watermark
        if machine.isr_written(isr, version, leader_epoch):
            replica.committed_since(before)
        replica.progress_waits.settle()
        self._unannounced.add(machine.topic_partition)
        self._has_unannounced.set()
        self._tell(machine.topic_partition, former, machine.isr)
        if machine.candidates(self.bounds):
            self.consider(replica)

    def _tell(self, tp: TopicPartition, former: tuple[BrokerId, ...], isr: tuple[BrokerId, ...]) -> None:
        left, joined = sorted(set(former) - set(isr)), sorted(set(isr) - set(former))
        if left:
            self.shrunk_count += 1
            log_event.warning("isr_shrunk", partition=str(tp), left=left, isr=isr)
        if joined:
            self.expanded_count += 1
            log_event.info("isr_expanded", partition=str(tp), joined=joined, isr=isr)

    def _write_again_later(self, replica: Replica, error: CoordinationError) -> None:
        log_event.warning("isr_change_delayed", partition=str(replica.topic_partition), reason=str(error))
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self.consider, replica)

    async def _announce(self) -> None:
        while True:
            await self._has_unannounced.wait()
            await asyncio.sleep(ANNOUNCEMENT_LINGER_SECONDS)
            self._has_unannounced.clear()
            changed, self._unannounced = self._unannounced, set()
            try:
                await announce_isr_changes(self._coordination, sorted(changed))
            except CoordinationError as error:
                log_event.warning("isr_announcement_delayed", partitions=len(changed), reason=str(error))
                self._unannounced |= changed
                await asyncio.sleep(RETRY_SECONDS)
                self._has_unannounced.set()

    def _state_changed(self, state: SessionState) -> None:
        self._is_connected = state is SessionState.CONNECTED
        if self._is_connected and self._due:
            self._is_due.set()
