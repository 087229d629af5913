"""A member of a group of the consumer protocol (KIP-848): drives `EpochMembership`.

`run` is the membership: one task, owned by the caller. It takes in one event after the other; heartbeats,
the owner's callbacks and the search for topics run beside it, each as a task that ends in an event. So
heartbeats go on while a callback takes its time, callbacks are awaited one at a time, and the coordinator is
told of partitions that are given up only when `on_revoked` has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.client.epoch_membership import (
    Answered,
    Broken,
    CameBack,
    Closed,
    Duty,
    DutyDone,
    EpochMembership,
    Event,
    Fenced,
    Heartbeat,
    Lose,
    MemberState,
    NotAnswered,
    PartitionOfId,
    Partitions,
    Refused,
    Revoke,
    StoodAside,
    Subscribed,
    TakeUp,
    Ticked,
)
from broker.client.epoch_requests import EpochRequests
from broker.client.group_offsets import (
    NO_MEMBERSHIP,
    Membership,
    OffsetAndMetadata,
    commit_offsets,
    fetch_offsets,
)
from broker.client.group_settings import ConsumerGroupSettings
from broker.client.subscription import PartitionsCallback, Subscription, SubscriptionPattern
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition

_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_BEHIND = frozenset({ErrorCode.STALE_MEMBER_EPOCH})
_BEHIND_OR_OUT = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_POSITIONS_TIMEOUT_MS = 30_000
"""For a commit, or the search for committed offsets, attempts included."""

_log = logger("group")


class EpochMember:
    """One member of one group. `run` it as a task, `close` it to leave."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerGroupSettings,
        *,
        subscription: Subscription,
        on_assigned: PartitionsCallback,
        on_revoked: PartitionsCallback,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """`on_revoked` may still commit;

        `on_lost` (by default the same function) cannot. All are awaited one at a time.
        """
        self.settings = settings
        self._cluster = cluster
        self._subscription = subscription
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost or on_revoked
        self._machine = EpochMembership(
            static=settings.instance_id is not None, leaves=settings.leave_on_close
        )
        self._lane = cluster.new_lane("member")
        self._requests = EpochRequests(cluster, settings, lane=self._lane)
        self._names: dict[PartitionOfId, TopicPartition] = {}
        """What the owner has."""
        self._inbox: asyncio.Queue[Event | asyncio.Task[Event]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Event]] = set()
        self._beating: asyncio.Task[Event] | None = None
        self._searching: asyncio.Task[Event] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._search_alarm: asyncio.TimerHandle | None = None
        self._failures = 0
        """Heartbeats in a row that did not come through."""
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def group_id(self) -> str:
        return self.settings.group_id

    @property
    def member_id(self) -> str:
        """The id this member gave itself."""
        return self._requests.member_id

    @property
    def generation(self) -> int:
        """The member's epoch, -1 while it takes part in none."""
        return self._machine.epoch if self._machine.epoch > 0 else -1

    @property
    def membership(self) -> Membership:
        """On whose behalf a transaction commits this member's positions."""
        return Membership(
            member_id=self.member_id, generation=self.generation, instance_id=self.settings.instance_id
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member has."""
        return frozenset(self._names.values())

    async def run(self) -> None:
        """Be a member until `close`. Raises what no rejoining mends: ProtocolError, or what a callback
        raised.

        A coordinator that cannot be reached is tried again for as long as this runs.
        """
        self._ended.clear()
        try:
            self._search()
            while self._machine.state is not MemberState.OVER:
                await self._take_event()
            if (failure := self._machine.failure) is not None:
                _log.warning("group_membership_failed", group=self.group_id, error=str(failure))
                raise failure
        finally:
            await self._stop()

    async def close(self) -> None:
        """Give up the partitions, leave the group, and return when `run` has ended."""
        self._inbox.put_nowait(Closed())
        await self._ended.wait()

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription; the coordinator assigns anew."""
        self._subscription = subscription
        if not self._ended.is_set():
            self._search()

    def stand_aside(self) -> None:
        """Give up the partitions, by `on_lost`, and leave the group until `come_back`: others get them.

        A static member keeps its place: its partitions are others' when its session has timed out.
        """
        self._inbox.put_nowait(StoodAside())

    def come_back(self) -> None:
        """Join the group again after `stand_aside`."""
        self._inbox.put_nowait(CameBack())

    async def settled(self) -> None:
        """Return when this member has what the coordinator wants it to have, or `run` has ended."""
        await self._settled.wait()

    # Positions

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Store positions on behalf of this member; when its epoch has moved on meanwhile, with the new one.

        Raises ProtocolError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID when it is a member no longer, and
        ILLEGAL_GENERATION while it is none: then the partitions may be another's, and its positions are not
        stored.
        """
        retries = self._cluster.retries(_POSITIONS_TIMEOUT_MS)
        while True:
            if self.generation < 0:
                raise ProtocolError(
                    ErrorCode.ILLEGAL_GENERATION, f"not a member of group {self.group_id} at the moment"
                )
            try:
                await commit_offsets(
                    self._cluster,
                    self.group_id,
                    offsets,
                    membership=self.membership,
                    timeout_ms=retries.remaining_ms,
                )
                return
            except ProtocolError as error:
                await retries.pause(error, also=_BEHIND)

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the group has stored for the partitions; those without a commit are left out.

        Raises as `fetch_offsets`.
        """
        retries = self._cluster.retries(_POSITIONS_TIMEOUT_MS)
        while True:
            membership = self.membership if self.generation > 0 else NO_MEMBERSHIP
            try:
                return await fetch_offsets(
                    self._cluster,
                    self.group_id,
                    partitions,
                    membership=membership,
                    timeout_ms=retries.remaining_ms,
                )
            except ProtocolError as error:  # one that is out will be told by its next heartbeat
                await retries.pause(error, also=_BEHIND_OR_OUT)

    # Events, and what follows from them

    async def _take_event(self) -> None:
        taken = await self._inbox.get()
        event = taken.result() if isinstance(taken, asyncio.Task) else taken
        state, epoch = self._machine.state, self._machine.epoch
        effects = self._machine.handle(event, self._now_ms())
        if (state, epoch) != (self._machine.state, self._machine.epoch):
            self._note_change(state)
        if effects.heartbeat is not None:
            if self._beating is not None:
                self._beating.cancel()
            self._beating = self._start(self._beat(effects.heartbeat), "heartbeat")
        if effects.duty is not None:
            self._start(self._do(effects.duty), "duty")
        self._set_alarm(effects.wake_at_ms)
        if self._machine.is_settled:
            self._settled.set()
        elif self._machine.state is MemberState.JOINING:
            self._settled.clear()

    def _note_change(self, state: MemberState) -> None:
        _log.info(
            "group_membership_changed",
            group=self.group_id,
            member=self.member_id,
            before=state.value,
            now=self._machine.state.value,
            epoch=self._machine.epoch,
        )

    def _start(self, work: Coroutine[Any, Any, Event], what: str) -> asyncio.Task[Event]:
        task = asyncio.create_task(work, name=f"{what} of group {self.group_id}")
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._inbox.put_nowait(task)

    def _set_alarm(self, wake_at_ms: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wake_at_ms is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(wake_at_ms / 1000, self._inbox.put_nowait, Ticked())

    async def _stop(self) -> None:
        self._set_alarm(None)
        if self._search_alarm is not None:
            self._search_alarm.cancel()
        running = set(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._names.clear()
        self._ended.set()
        self._settled.set()
        await self._cluster.release_lane(self._lane)

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _delay_ms(self, failures: int) -> float:
        return self._cluster.backoff.delay_ms(failures, self._cluster.random)

    # Heartbeats

    async def _beat(self, heartbeat: Heartbeat) -> Event:
        try:
            answered: Answered = await self._requests.heartbeat(heartbeat)
        except BrokerError as error:
            self._failures += 1
            return self._unanswered(heartbeat, error)
        self._failures = 0
        return answered

    def _unanswered(self, heartbeat: Heartbeat, error: BrokerError) -> Event:
        if heartbeat.leaves:
            _log.info("group_not_left", group=self.group_id, member=self.member_id, error=str(error))
        delay_ms = self._delay_ms(self._failures)
        if isinstance(error, ProtocolError) and error.code in _FENCED:
            return Fenced(heartbeat=heartbeat, retry_in_ms=delay_ms)
        if is_retriable(error):
            _log.info("heartbeat_not_answered", group=self.group_id, error=str(error))
            return NotAnswered(heartbeat=heartbeat, retry_in_ms=delay_ms)
        return Refused(heartbeat=heartbeat, error=error)

    # The owner's duties

    async def _do(self, duty: Duty) -> Event:
        match duty:
            case Revoke(partitions):
                await self._revoke(partitions)
            case Lose(partitions):
                await self._lose(partitions)
            case TakeUp(partitions):
                return await self._take_up(partitions)
        return DutyDone(owned=frozenset(self._names))

    async def _revoke(self, partitions: Partitions) -> None:
        """Let the owner give the partitions up. Where it fails to, they are gone all the same."""
        try:
            await self._on_revoked(self._named(partitions))
        except BrokerError as error:
            _log.warning("group_revocation_failed", group=self.group_id, error=str(error))
        self._forget(partitions)

    async def _lose(self, partitions: Partitions) -> None:
        lost = self._named(partitions)
        _log.warning("group_partitions_lost", group=self.group_id, member=self.member_id, count=len(lost))
        self._forget(partitions)
        await self._on_lost(lost)

    async def _take_up(self, partitions: Partitions) -> DutyDone:
        """Hand the partitions to the owner, but for those of topics that metadata does not tell of yet."""
        found = await self._find_names(partitions)
        if found:
            self._names |= found
            try:
                await self._on_assigned(frozenset(found.values()))
            except BrokerError as error:
                _log.warning("group_partitions_not_taken_up", group=self.group_id, error=str(error))
                await self._lose(frozenset(found))
                if not is_retriable(error):
                    self._inbox.put_nowait(Broken(error=error))
        owned = frozenset(self._names)
        retry_in_ms = self._cluster.backoff.max_ms if partitions - owned else 0.0
        return DutyDone(owned=owned, retry_in_ms=retry_in_ms)

    async def _find_names(self, partitions: Partitions) -> dict[PartitionOfId, TopicPartition]:
        if any(each.topic_id not in self._cluster.metadata.topic_names for each in partitions):
            try:
                await self._cluster.refresh(self._topics_to_look_for())
            except BrokerError as error:
                _log.info("group_metadata_not_refreshed", group=self.group_id, error=str(error))
        names = self._cluster.metadata.topic_names
        return {
            each: TopicPartition(names[each.topic_id], each.partition)
            for each in partitions
            if each.topic_id in names
        }

    def _topics_to_look_for(self) -> Collection[str] | None:
        """None for all: who knows what an expression matches."""
        subscription = self._subscription
        if callable(subscription) or isinstance(subscription, SubscriptionPattern):
            return None
        return subscription

    def _named(self, partitions: Partitions) -> frozenset[TopicPartition]:
        return frozenset(self._names[each] for each in partitions)

    def _forget(self, partitions: Partitions) -> None:
        for each in partitions:
            del self._names[each]

    # Topics

    def _search(self) -> None:
        """Find out what to subscribe to; a search that is under way was for something else."""
        if self._search_alarm is not None:
            self._search_alarm.cancel()
        if self._searching is not None:
            self._searching.cancel()
        self._searching = self._start(self._find_topics(), "topics")

    async def _find_topics(self) -> Event:
        failures = 0
        while True:
            try:
                return await self._subscribed()
            except BrokerError as error:
                if not is_retriable(error):
                    return Broken(error=error)
                _log.info("group_metadata_not_refreshed", group=self.group_id, error=str(error))
                failures += 1
            await asyncio.sleep(self._delay_ms(failures) / 1000)

    async def _subscribed(self) -> Subscribed:
        """What to tell the coordinator. What this process has to find out is looked at again, later."""
        subscription = self._subscription
        if isinstance(subscription, SubscriptionPattern):
            if await self._requests.resolves_patterns():
                return Subscribed(pattern=subscription.expression)
            subscription = subscription.chooser()
        if not callable(subscription):
            return Subscribed(topics=frozenset(subscription))
        chosen = frozenset(subscription(await self._cluster.refresh()))
        loop = asyncio.get_running_loop()
        self._search_alarm = loop.call_later(self.settings.metadata_max_age_ms / 1000, self._search)
        return Subscribed(topics=chosen)
