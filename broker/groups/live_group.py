"""One group on this node: its membership, its offsets, its timers, and the performing of what they decide.

A group speaks the classic protocol (`membership`) or the consumer protocol (`rounds`); its offsets stay when
it changes from one to the other.

Everything happens on the event loop in plain functions: an event goes into the machine, and its effects are
carried out before the next event is looked at. Only the log is waited for, by callback, in the order in which
it was written. `replay` builds a group up from the log before anything else; whatever is written later comes
back the same way, through the same `apply`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import assert_never

from broker.coordinators.record_batches import NO_PRODUCER, ProducerIdentity
from broker.errors import ErrorCode, WireError
from broker.groups.consumer_groups import offset_checks
from broker.groups.consumer_groups.events import (
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberSyncTimer,
    MemberTimer,
    MemberTimerFired,
    RejoinTimer,
    Retirement,
    RevocationTimer,
)
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import JOIN_EPOCH
from broker.groups.consumer_groups.migration import may_upgrade, upgraded
from broker.groups.consumer_rounds import ConsumerRounds
from broker.groups.events import (
    CancelTimer,
    CoordinatorMoved,
    Deleted,
    Downgraded,
    Effects,
    GroupMetadata,
    Heartbeat,
    Join,
    Leave,
    Loaded,
    OffsetsCommitted,
    SessionTimer,
    SetTimer,
    Store,
    Stored,
    Sync,
    Timer,
    TimerFired,
    Upgraded,
)
from broker.groups.events import Event as ClassicEvent
from broker.groups.group_timers import GroupTimers
from broker.groups.log_codec import ConsumerGroupRecord, GroupRecord, LogRecord, OffsetRecord
from broker.groups.log_errors import COMMIT_ERRORS, STORE_ERRORS
from broker.groups.membership import Membership
from broker.groups.offsets import Commit, Offsets
from broker.groups.retention import Retention, retention_of
from broker.groups.standing import Standing
from broker.groups.state import GroupType, State
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from broker.groups.surroundings import Surroundings
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("groups")

Event = ClassicEvent | ConsumerHeartbeat


class LiveGroup:
    """One group; every method belongs to the event loop's thread."""

    def __init__(self, group_id: str, surroundings: Surroundings) -> None:
        self.group_id = group_id
        self.membership = Membership(surroundings.config)
        self.offsets = Offsets(surroundings.config.offset_metadata_size_max)
        self._surroundings = surroundings
        self._rounds: ConsumerRounds | None = None
        self._classic_before: GroupMetadata | None = None
        """While it becomes a consumer group: what the log says of the classic one."""
        self._deletion: asyncio.Future[ErrorCode] | None = None
        """While a consumer group is being deleted: who waits for it."""
        self._has_left = False
        self._timers: GroupTimers[Timer | MemberTimer] = GroupTimers(
            surroundings.clock, surroundings.config.timer_lateness_max_ms, self._timer_fired
        )

    # What it is

    @property
    def type(self) -> GroupType:
        """The protocol that it speaks now."""
        return GroupType.CLASSIC if self._rounds is None else GroupType.CONSUMER

    @property
    def standing(self) -> Standing:
        """How the group stands while it is classic; while it is not, that of an empty one."""
        return self.membership.standing

    @property
    def image(self) -> GroupImage | None:
        """How the group stands while it speaks the consumer protocol."""
        return self._rounds.group.image if self._rounds is not None else None

    @property
    def state_name(self) -> str:
        """The state as clients are shown it."""
        image = self.image
        return self.standing.state.value if image is None else image.state.value

    @property
    def protocol_type(self) -> str:
        """What the members are; empty where nobody ever joined."""
        return (self.standing.protocol_type or "") if self._rounds is None else CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        image = self.image
        return self.standing.state is State.EMPTY if image is None else not len(image)

    @property
    def is_dead(self) -> bool:
        """Whether it is being deleted."""
        return self.standing.state is State.DEAD or self._deletion is not None

    @property
    def is_of_consumers(self) -> bool:
        """Whether the topics that its members use can be told."""
        return self._rounds is not None or self.standing.is_consumer_group

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether some member uses `topic`; yes when that cannot be told."""
        image = self.image
        if image is None:
            return not self.is_empty and self.standing.is_subscribed_to(topic)
        return topic in image.all_subscribed_names()

    def commit_error(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        *,
        knows_epochs: bool = True,
        transactional: bool = False,
    ) -> ErrorCode:
        """Whether these may commit offsets now. `knows_epochs`: the request is of a version that members of
        the consumer protocol may use.
        """
        if self._deletion is not None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        image = self.image
        if image is None:
            return self.standing.commit_error(generation, member_id, instance_id, transactional=transactional)
        if transactional:
            return offset_checks.transactional_commit_error(image, generation, member_id, instance_id)
        return offset_checks.commit_error(image, generation, member_id, knows_epochs=knows_epochs)

    def fetch_error(self, member_epoch: int, member_id: str | None) -> ErrorCode:
        """Whether these may read the group's offsets."""
        image = self.image
        return ErrorCode.NONE if image is None else offset_checks.fetch_error(image, member_epoch, member_id)

    # From the log

    def replay(self, record: LogRecord) -> None:
        """Take in a record of the log: before `go_live` what was read, later offsets that were written."""
        match record:
            case GroupRecord():
                self._apply_metadata(record.metadata)
            case ConsumerGroupRecord():
                self._open_rounds().group.apply(record.change)
            case OffsetRecord(producer_id=None):
                self.offsets.apply(record.partition, record.committed)
            case OffsetRecord(producer_id=int(producer_id)):
                self.offsets.apply_transactional(producer_id, record.partition, record.committed)
                self._surroundings.in_transaction(producer_id, self.group_id)

    def go_live(self) -> None:
        """The log was read to its end: sessions run from now on."""
        if self._rounds is not None and not self._rounds.group.image.exists:
            self._rounds = None
        if self._rounds is not None:
            self._rounds.tell(Loaded())
        else:
            self.tell(Loaded())

    def _apply_metadata(self, metadata: GroupMetadata | None) -> None:
        if metadata is None:
            self.membership = Membership(self._surroundings.config)
        else:
            self.membership.apply(metadata)

    # Membership

    def tell(self, event: Event) -> None:
        """Let the machine of the group's protocol handle an event and do what it decides."""
        if self._rounds is not None:
            if isinstance(event, ConsumerHeartbeat | Join | Sync | Heartbeat | Leave):
                self._rounds.tell(event)
        elif isinstance(event, ConsumerHeartbeat):
            self._consumer_comes(event)
        else:
            self._tell_classic(event)
        self._check_disposable()

    def _tell_classic(self, event: ClassicEvent) -> None:
        self._perform(self.membership.handle(event, self._surroundings.clock.now_ms()))

    def _perform(self, effects: Effects) -> None:
        for timer_effect in effects.timers:
            match timer_effect:
                case SetTimer():
                    self._timers.set(timer_effect.timer, timer_effect.delay_ms)
                case CancelTimer():
                    self._timers.cancel(timer_effect.timer)
                case _:
                    assert_never(timer_effect)
        for reply in effects.replies:
            self._surroundings.waiters.answer(reply.waiter, reply.value)
        for store in effects.stores:
            record = GroupRecord(group_id=self.group_id, metadata=store.metadata)
            self._surroundings.writer.submit([record], partial(self._stored, self.membership, store))
        for fact in effects.facts:
            _log.info(fact.name, group=self.group_id, **fact.details)

    def _stored(self, membership: Membership, store: Store, error: ErrorCode) -> None:
        if membership is self.membership:
            self._tell_classic(Stored(store=store, error=STORE_ERRORS.get(error, error)))
            self._check_disposable()

    def _check_disposable(self) -> None:
        if self._rounds is None and self.membership.is_disposable and self.offsets.is_empty:
            self._surroundings.on_disposable(self)

    def _timer_fired(self, timer: Timer | MemberTimer) -> None:
        if self._rounds is None:
            if not isinstance(timer, RevocationTimer | RejoinTimer | MemberSyncTimer):
                self.tell(TimerFired(timer=timer))
        elif isinstance(timer, SessionTimer | RevocationTimer | RejoinTimer | MemberSyncTimer):
            self._rounds.tell(MemberTimerFired(timer=timer))

    # From one protocol to the other

    def _open_rounds(self) -> ConsumerRounds:
        if self._rounds is None:
            self._rounds = ConsumerRounds(
                self.group_id, self._surroundings, self._timers, self._round_settled
            )
        return self._rounds

    def _consumer_comes(self, event: ConsumerHeartbeat) -> None:
        """A member of the consumer protocol asks for a group that is not of its kind, or not at all."""
        standing = self.standing
        is_no_such = f"Group {self.group_id} is not a consumer group"
        if event.member_epoch != JOIN_EPOCH:
            self._refuse(event, ErrorCode.GROUP_ID_NOT_FOUND, f"{is_no_such}.")
        elif standing.state is State.DEAD:
            self._refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group is being deleted.")
        elif standing.state is State.EMPTY or may_upgrade(standing, self._surroundings.config.consumer):
            self._upgrade(event)
        else:
            self._refuse(event, ErrorCode.GROUP_ID_NOT_FOUND, f"{is_no_such}, and cannot become one.")

    def _refuse(self, event: ConsumerHeartbeat, error: ErrorCode, message: str) -> None:
        self._surroundings.waiters.answer(event.waiter, ConsumerHeartbeatReply(error=error, message=message))

    def _upgrade(self, event: ConsumerHeartbeat) -> None:
        """Be a consumer group from now on; members that wait for an answer are told to join again."""
        standing = self.standing
        had_members, self._classic_before = len(standing.roster) > 0, standing.stored
        try:
            changes = upgraded(standing, self._surroundings.topics.current()) if had_members else []
        except WireError as error:
            _log.warning("group_not_upgraded", group=self.group_id, reason=str(error))
            self._refuse(
                event, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} cannot become a consumer group."
            )
            return
        self._tell_classic(Upgraded())
        self._timers.stop()
        self.membership = Membership(self._surroundings.config)
        if had_members or self._classic_before is not None:
            self._open_rounds().convert(changes, event)
        else:
            self._open_rounds().tell(event)

    def _round_settled(
        self, error: ErrorCode, retirement: Retirement | None, unhandled: Sequence[ConsumerEvent]
    ) -> None:
        if self._rounds is not None and not self._has_left and not self._rounds.group.image.exists:
            self._rounds = None
            self._timers.stop()
            if retirement is not None and retirement.metadata is not None:
                self._become_classic(retirement.metadata, Downgraded())
            elif retirement is None and self._classic_before is not None:
                self._become_classic(self._classic_before, Loaded())
        self._classic_before = None
        if self._deletion is not None:
            self._deleted(self._deletion, error)
        for event in unhandled:
            if not isinstance(event, MemberTimerFired | Loaded):
                self.tell(event)
        self._check_disposable()

    def _become_classic(self, metadata: GroupMetadata, event: ClassicEvent) -> None:
        self.membership.apply(metadata)
        self._tell_classic(event)

    # Offsets

    def commit(self, member_id: str, commit: Commit) -> asyncio.Future[ErrorCode]:
        """Write offsets (at least one) that `member_id` may commit; the future tells how it went. Raises
        WireError.
        """
        records = [
            OffsetRecord(group_id=self.group_id, partition=partition, committed=committed)
            for partition, committed in commit.items()
        ]
        written = self._write_offsets(records)
        self.tell(OffsetsCommitted(member_id=member_id))
        return written

    def commit_in_transaction(self, producer: ProducerIdentity, commit: Commit) -> asyncio.Future[ErrorCode]:
        """Write offsets (at least one) that count once the producer's transaction is committed; the future
        tells how it went. Raises WireError.
        """
        records = [
            OffsetRecord(
                group_id=self.group_id,
                partition=partition,
                committed=committed,
                producer_id=producer.producer_id,
            )
            for partition, committed in commit.items()
        ]
        return self._write_offsets(records, producer)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of the producer's transaction is in the log."""
        self.offsets.end_transaction(producer_id, committed=committed)
        self._check_disposable()

    def delete_offsets(self, partitions: Collection[TopicPartition]) -> asyncio.Future[ErrorCode]:
        """Write tombstones for `partitions` (at least one); the future tells how it went."""
        return self._write_offsets(
            [
                OffsetRecord(group_id=self.group_id, partition=partition, committed=None)
                for partition in sorted(partitions)
            ]
        )

    def _write_offsets(
        self, records: Sequence[OffsetRecord], producer: ProducerIdentity = NO_PRODUCER
    ) -> asyncio.Future[ErrorCode]:
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        partitions = [record.partition for record in records]
        transactional = producer is not NO_PRODUCER

        def done(error: ErrorCode) -> None:
            self.offsets.end(partitions, transactional=transactional)
            if error is ErrorCode.NONE:
                for record in records:
                    self.replay(record)
            if not result.done():
                result.set_result(COMMIT_ERRORS.get(error, error))
            self._check_disposable()

        self._surroundings.writer.submit(records, done, producer)
        self.offsets.begin(partitions, transactional=transactional)
        return result

    # Endings

    def expire(self, now_ms: int) -> None:
        """Write tombstones for what has outlived its retention; a group left with nothing goes altogether."""
        retention = self._retention()
        expired = self.offsets.expired(retention, now_ms) if retention is not None else []
        if expired:
            _log.info("offsets_expired", group=self.group_id, count=len(expired))
        nothing_left = len(expired) == len(self.offsets) and self.offsets.is_settled
        if nothing_left and self._is_deserted:
            self.delete()
        elif expired:
            self.delete_offsets(expired)

    def _retention(self) -> Retention | None:
        image, retention_ms = self.image, self._surroundings.config.offsets_retention_ms
        if image is None:
            return retention_of(self.standing, retention_ms)
        return Retention(retention_ms=retention_ms, kept_topics=image.all_subscribed_names())

    @property
    def _is_deserted(self) -> bool:
        if self._rounds is None:
            return self.membership.is_deserted
        return self.is_empty and self._rounds.is_idle

    def delete(self) -> asyncio.Future[ErrorCode]:
        """Remove the group, which must be empty, from the log; meanwhile it is Dead. The future tells how it
        went.

        When the log refuses, the group is again what the log says.
        """
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        tombstones: list[LogRecord] = [
            OffsetRecord(group_id=self.group_id, partition=partition, committed=None)
            for partition in sorted(self.offsets.partitions)
        ]
        if self._rounds is None:
            self._delete_classic(tombstones, result)
        elif self._rounds.is_idle:
            self._deletion = result
            self._rounds.delete(tombstones)
        else:
            result.set_result(ErrorCode.NON_EMPTY_GROUP)  # somebody is joining
        return result

    def _delete_classic(self, tombstones: Sequence[LogRecord], result: asyncio.Future[ErrorCode]) -> None:
        self.tell(Deleted())

        def done(error: ErrorCode) -> None:
            stored = self.standing.stored
            self._apply_metadata(None)
            if error is not ErrorCode.NONE and stored is not None:
                self._apply_metadata(stored)
                self.go_live()
            self._deleted(result, error)
            self._check_disposable()

        tombstone = GroupRecord(group_id=self.group_id, metadata=None)
        self._surroundings.writer.submit([*tombstones, tombstone], done)

    def _deleted(self, result: asyncio.Future[ErrorCode], error: ErrorCode) -> None:
        self._deletion = None
        if error is ErrorCode.NONE:
            self.offsets = Offsets(self._surroundings.config.offset_metadata_size_max)
            _log.info("group_deleted", group=self.group_id)
        if not result.done():
            result.set_result(COMMIT_ERRORS.get(error, error))

    def leave_node(self) -> None:
        """This node no longer coordinates the group: waiters are sent away, timers stop."""
        self._has_left = True
        self._tell_classic(CoordinatorMoved())
        if self._rounds is not None:
            self._rounds.leave_node(ErrorCode.NOT_COORDINATOR)
        self._timers.stop()
