"""One task that follows a leader: asks it for all of its partitions, and does to their logs what it says.

`Following` decides what to ask and what answers mean; here it is done. Between two partitions, and between
two stretches of a large answer, other tasks have their turn, and may have given the replica another role:
nothing is done to a partition that is not current any more. Cuts, and the flushes that `flush.messages` asks
for, are tasks of their own, so that a slow disk holds up nobody else's partitions; a cut that an order
overtakes is not begun. To ask for an offset is to say that everything below is here, so that is done after
the flush. A leader may let a question wait; one that an order has changed meanwhile is taken back
by closing the connection, and asked anew: else producers would wait for the followers of a new leader for as
long as that leader's other partitions have nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, assert_never

from broker.clock import Clock
from broker.cluster.image import BrokerInfo
from broker.errors import (
    ConnectionFailedError,
    CorruptRecordsError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
    StorageError,
    WireError,
)
from broker.replication import followed_log
from broker.replication.followed_log import STRETCH_BYTES, position_of
from broker.replication.following import (
    BACKOFF_MS_MIN,
    Append,
    Diverged,
    FetchBounds,
    Followed,
    Following,
    Overrun,
    Refused,
    Restart,
    Step,
    cut_offset,
    is_session_error,
)
from broker.replication.node_connection import NodePort
from broker.replication.replica import Replica
from broker.replication.replication_quotas import ReplicationQuota
from broker.storage.leader_epochs import EpochEnd
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, BrokerId, TopicId, TopicPartition
from broker.wire.messages.fetch import FetchRequest, FetchResponse

log_event = logger("fetcher")

_TAKEN_BACK_MS = 20
"""How long a question may wait at the leader after it has changed. What changes together, for one order of
the controller, makes for one new question.
"""
_QUESTIONS_PER_MS = 20
"""A new question names all partitions, so it may wait longer where there are many."""
_STRETCH_OVERHEAD = 16 << 10
"""An append of nothing takes as long as one more byte of so many."""


@dataclass(slots=True)
class FetchCounts:
    """What all fetchers of a node did since it started."""

    requests: int = 0
    failed_requests: int = 0
    bytes: int = 0
    """Of records that were appended."""
    cuts: int = 0
    corrupt: int = 0
    """Answers whose records were not what a leader stores."""
    refused_for_space: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every fetcher of a node works with."""

    local: BrokerId
    bounds: FetchBounds
    quota: ReplicationQuota
    clock: Clock
    executor: Executor
    """For what waits for the disk."""
    broker: Callable[[BrokerId], BrokerInfo | None]
    """Where a node is now, None while that is not known."""
    broker_epoch: Callable[[], int]
    """Of this node's registration."""
    start: Callable[[Coroutine[Any, Any, None]], object]
    """Run work to its end, beside everything else."""
    counts: FetchCounts = field(default_factory=FetchCounts)


class Fetcher:
    """See the module's description; `run` is a task of the node."""

    def __init__(self, leader: BrokerId, port: NodePort, surroundings: Surroundings) -> None:
        self.leader = leader
        self._port = port
        self._around = surroundings
        self._clock = surroundings.clock
        self._counts = surroundings.counts
        self._following = Following(surroundings.local, surroundings.bounds)
        self._replicas: dict[TopicPartition, tuple[Replica, Followed]] = {}
        self._changed = asyncio.Event()
        self._failures = 0
        self._is_asking = False
        self._taking_back: asyncio.TimerHandle | None = None
        self._is_taken_back = False
        self._done = 0
        """What was appended since others had their turn, in bytes."""

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def lag_max(self) -> int:
        """The largest number of offsets that a partition ends below its leader's high watermark."""
        return max((followed.lag for followed in self._following), default=0)

    # Which partitions

    def follow(self, replica: Replica) -> None:
        """Follow in the replica's leader epoch; what is under way in another one counts no more."""
        partition, epoch = replica.topic_partition, replica.machine.leader_epoch
        known, followed = self._replicas.get(partition, (None, None))
        if known is replica and followed is not None and followed.leader_epoch == epoch:
            return
        self.forget(partition)
        topic_id = replica.log.topic_id or TopicId(NO_TOPIC_ID)
        followed = self._following.follow(partition, topic_id, epoch, position_of(replica))
        self._replicas[partition] = replica, followed
        self._take_back_soon()
        if replica.cutting is not None:
            self._following.pause(followed)
            self._around.start(self._go_on_after_cut(replica, followed))
        else:
            self._advanced(replica, followed)

    def forget(self, partition: TopicPartition) -> None:
        """Follow it no longer."""
        _, followed = self._replicas.pop(partition, (None, None))
        if followed is not None:
            self._following.forget(followed)

    async def _go_on_after_cut(self, replica: Replica, followed: Followed) -> None:
        await replica.settled()
        self._advanced(replica, followed)

    # Asking

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                self._changed.clear()
                self._hold_throttled()
                request = self._following.next_request(
                    self._around.broker_epoch(), self._clock.monotonic_ms()
                )
                if request is None:
                    await self._until_due()
                elif (response := await self._answer(request)) is not None:
                    for step in self._following.answered(response, self._clock.monotonic_ms()):
                        await self._do(step)
        finally:
            await self._port.close()

    async def _until_due(self) -> None:
        """Return when a partition came, or has rested."""
        due_ms = self._following.next_due_ms()
        await self._until_changed(None if due_ms is None else max(due_ms - self._clock.monotonic_ms(), 1))

    async def _until_changed(self, wait_ms_max: int | None) -> None:
        """Return when a partition came, got a new epoch or may go on, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if wait_ms_max is None else wait_ms_max / 1000):
                await self._changed.wait()

    async def _answer(self, request: FetchRequest) -> FetchResponse | None:
        """What the leader answers; None after a failure, and the wait that follows one."""
        self._counts.requests += 1
        self._is_asking, self._is_taken_back = True, False
        try:
            broker = self._around.broker(self.leader)
            if broker is None:
                raise ConnectionFailedError(f"broker {self.leader} is not known")
            response = await self._port.send(broker, request)
            if is_session_error(response.error_code):
                self._following.lost_session()
                return None
            if response.error_code:
                raise ProtocolError(
                    ErrorCode.of(response.error_code), f"broker {self.leader} refused a fetch"
                )
        except (ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError) as error:
            if self._is_taken_back:
                self._following.lost_session()
            else:
                await self._failed(error)
            return None
        finally:
            self._is_asking = False
            if self._taking_back is not None:
                self._taking_back.cancel()
                self._taking_back = None
        if self._failures:
            log_event.info("leader_reached", leader=self.leader, failures=self._failures)
            self._failures = 0
        return response

    def _take_back_soon(self) -> None:
        """A partition has changed, and the leader may let a question wait that does not know it."""
        if self._is_asking and self._taking_back is None:
            delay_ms = _TAKEN_BACK_MS + len(self) // _QUESTIONS_PER_MS
            self._taking_back = asyncio.get_running_loop().call_later(delay_ms / 1000, self._take_back)

    def _take_back(self) -> None:
        self._is_taken_back = True
        self._around.start(self._port.close())

    async def _failed(self, error: Exception) -> None:
        self._counts.failed_requests += 1
        self._following.lost_session()
        if not self._failures:
            log_event.warning("leader_not_reached", leader=self.leader, reason=str(error))
        backoff_ms = min(BACKOFF_MS_MIN << min(self._failures, 16), self._around.bounds.backoff_ms)
        self._failures += 1
        await self._until_changed(backoff_ms)

    # Doing what the answers mean

    async def _do(self, step: Step) -> None:
        followed = step.followed
        found = self._replicas.get(followed.topic_partition)
        if found is None or found[1] is not followed:
            return
        replica = found[0]
        match step:
            case Append():
                await self._append(replica, step)
            case Diverged():
                leader_end = EpochEnd(step.epoch, step.end_offset)
                offset = cut_offset(leader_end, replica.log.leader_epochs, replica.log.log_end_offset)
                self._start_cut(replica, followed, offset, leader_epoch_end=leader_end)
            case Overrun():
                self._start_cut(replica, followed, step.high_watermark, leader_epoch_end=None)
            case Restart():
                self._following.pause(followed)
                self._around.start(self._restart(replica, step))
            case Refused():
                if followed.refusals == 1:
                    log_event.info(
                        "fetch_refused",
                        partition=str(followed.topic_partition),
                        leader=self.leader,
                        leader_epoch=followed.leader_epoch,
                        error=step.code.name,
                    )
            case _:
                assert_never(step)

    async def _append(self, replica: Replica, step: Append) -> None:
        followed, records = step.followed, memoryview(step.records)
        if not len(records):
            self._heard(replica, step)
            return
        if not replica.free_space.admits(len(records)):
            self._counts.refused_for_space += 1
            self._rest(replica, followed, "follower_waits_for_room", "the log directory is full")
            return
        try:
            await followed_log.make_room_below(replica, records, self._around.executor)
            for stretch in followed_log.stretches(records):
                if not self._following.is_current(followed):
                    return
                followed_log.append(replica, stretch)
                self._counts.bytes += len(stretch)
                if self._is_throttled(replica, followed):
                    self._around.quota.record(len(stretch))
                await self._give_turn(len(stretch))
        except CorruptRecordsError as error:
            self._rest_from_corrupt(replica, followed, str(error))
            return
        except StorageError as error:
            self._rest(replica, followed, "followed_log_failed", str(error))
            return
        if not self._following.is_current(followed):
            return
        if replica.log.log_end_offset == followed.position.end_offset:
            self._rest_from_corrupt(replica, followed, "no whole batch came")
            return
        self._heard(replica, step)

    def _heard(self, replica: Replica, step: Append) -> None:
        try:
            followed_log.hear(replica, step.high_watermark, step.log_start_offset)
        except StorageError as error:
            self._rest(replica, step.followed, "followed_log_failed", str(error))
            return
        self._advanced(replica, step.followed)

    def _is_throttled(self, replica: Replica, followed: Followed) -> bool:
        """Whether it is to be copied slowly, as it has not caught up."""
        if not self._around.quota.in_force or followed.is_caught_up:
            return False
        throttled = replica.log.config.follower_replication_throttled_replicas
        return throttled.holds(followed.topic_partition.partition, self._around.local)

    def _hold_throttled(self) -> None:
        """Ask for nothing that the quota has no room for."""
        quota = self._around.quota
        if not quota.in_force or not (rest_ms := quota.rest_ms()):
            return
        until_ms = self._clock.monotonic_ms() + rest_ms
        for replica, followed in self._replicas.values():
            if self._is_throttled(replica, followed):
                self._following.hold(followed, until_ms)

    async def _give_turn(self, size: int) -> None:
        """Let others have their turn once enough was done since they had it."""
        self._done += size + _STRETCH_OVERHEAD
        if self._done > STRETCH_BYTES:
            self._done = 0
            await asyncio.sleep(0)

    def _start_cut(
        self, replica: Replica, followed: Followed, offset: int, *, leader_epoch_end: EpochEnd | None
    ) -> None:
        self._following.pause(followed)
        log, high_watermark = replica.log, replica.high_watermark
        tell = log_event.warning if offset < high_watermark else log_event.info
        tell(
            "follower_cut",
            partition=str(followed.topic_partition),
            leader=self.leader,
            leader_epoch=followed.leader_epoch,
            leader_epoch_end=leader_epoch_end,
            from_offset=log.log_end_offset,
            to_offset=offset,
            high_watermark=high_watermark,
        )
        self._around.start(self._cut(replica, followed, offset))

    async def _cut(self, replica: Replica, followed: Followed, offset: int) -> None:
        if not self._following.is_current(followed):
            return  # an order came first: this node may lead now, and what it has is the history
        self._counts.cuts += 1
        try:
            await followed_log.cut(replica, offset, self._around.executor)
        except (CorruptRecordsError, StorageError) as error:
            self._rest(replica, followed, "followed_log_failed", str(error))
        else:
            self._advanced(replica, followed)

    async def _restart(self, replica: Replica, step: Restart) -> None:
        followed = step.followed
        if not self._following.is_current(followed):
            return  # as for `_cut`
        log_event.warning(
            "follower_restarted",
            partition=str(followed.topic_partition),
            leader=self.leader,
            from_offset=replica.log.log_end_offset,
            to_offset=step.log_start_offset,
        )
        try:
            await followed_log.restart(replica, step.log_start_offset, self._around.executor)
        except StorageError as error:
            self._rest(replica, followed, "followed_log_failed", str(error))
        else:
            replica.machine.told_high_watermark(step.high_watermark)
            self._advanced(replica, followed)

    def _advanced(self, replica: Replica, followed: Followed) -> None:
        """Go on from where the log ends now, once it is as durable as its settings ask."""
        if replica.flush_is_due:
            self._following.pause(followed)
            self._around.start(self._flush(replica, followed))
        else:
            self._following.advanced(followed, position_of(replica))
            self._changed.set()

    async def _flush(self, replica: Replica, followed: Followed) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._around.executor, replica.log.flush)
        except StorageError as error:
            self._rest(replica, followed, "followed_log_failed", str(error))
        else:
            self._following.advanced(followed, position_of(replica))
            self._changed.set()

    def _rest_from_corrupt(self, replica: Replica, followed: Followed, reason: str) -> None:
        self._counts.corrupt += 1
        self._rest(replica, followed, "fetched_records_corrupt", reason)

    def _rest(self, replica: Replica, followed: Followed, event: str, reason: str) -> None:
        """Leave the partition alone for a while, and say why the first time in a row."""
        if not followed.refusals:
            log_event.error(
                event,
                partition=str(followed.topic_partition),
                leader=self.leader,
                log_end_offset=replica.log.log_end_offset,
                reason=reason,
            )
        self._following.back_off(followed, position_of(replica), self._clock.monotonic_ms())
        self._changed.set()
