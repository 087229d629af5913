"""One group on this node: its membership, its offsets, its timers, and the performing of what they decide.

Everything happens on the event loop in plain functions: an event goes into the machine, and its effects are
carried out before the next event is looked at. Only the log is waited for, by callback, in the order in which
it was written. `replay` builds a group up from the log before anything else; whatever is written later comes
back the same way, through the same `apply`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, assert_never

from broker.clock import Clock
from broker.coordinators.partition_writer import PartitionWriter
from broker.coordinators.record_batches import NO_PRODUCER, ProducerIdentity
from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.deadlines import Deadlines
from broker.groups.events import (
    CancelTimer,
    CoordinatorMoved,
    Deleted,
    Effects,
    Event,
    GroupMetadata,
    Loaded,
    OffsetsCommitted,
    Reply,
    ReplyValue,
    SetTimer,
    Store,
    Stored,
    Timer,
    TimerFired,
    Waiter,
)
from broker.groups.log_codec import GroupRecord, LogRecord, OffsetRecord
from broker.groups.log_errors import COMMIT_ERRORS, STORE_ERRORS
from broker.groups.membership import Membership
from broker.groups.offsets import Commit, Offsets
from broker.groups.retention import retention_of
from broker.groups.standing import Standing
from broker.telemetry import logger
from broker.types import TopicPartition

_log = logger("groups")

AnyReply = TypeVar("AnyReply", bound=ReplyValue)


class Waiters:
    """Requests that wait for a machine's answer, by token. A caller that went away is a cancelled future: its
    answer is dropped.
    """

    def __init__(self) -> None:
        self._futures: dict[Waiter, asyncio.Future[Any]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._futures)

    def open(self, kind: type[AnyReply]) -> tuple[Waiter, asyncio.Future[AnyReply]]:
        """A token, and the future that its answer, of type `kind`, will be set on."""
        self._last += 1
        waiter = Waiter(self._last)
        answer: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
        self._futures[waiter] = answer
        return waiter, answer

    def answer(self, reply: Reply) -> None:
        """Hand a reply over."""
        answer = self._futures.pop(reply.waiter)
        if not answer.done():
            answer.set_result(reply.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the groups of one partition share."""

    config: GroupConfig
    clock: Clock
    writer: PartitionWriter[LogRecord]
    waiters: Waiters
    on_disposable: Callable[[LiveGroup], None] = field(repr=False)
    """Called when nothing would be lost by forgetting the group."""
    in_transaction: Callable[[int, str], None] = field(repr=False)
    """Told of a producer whose transaction has offsets of the group, by its id."""


class LiveGroup:
    """One group; every method belongs to the event loop's thread."""

    def __init__(self, group_id: str, surroundings: Surroundings) -> None:
        self.group_id = group_id
        self.membership = Membership(surroundings.config)
        self.offsets = Offsets(surroundings.config.offset_metadata_size_max)
        self._surroundings = surroundings
        self._deadlines: Deadlines[Timer] = Deadlines(surroundings.config.timer_lateness_max_ms)
        self._wake: asyncio.TimerHandle | None = None
        self._wake_due_ms = 0

    @property
    def standing(self) -> Standing:
        """How the group stands."""
        return self.membership.standing

    # From the log

    def replay(self, record: LogRecord) -> None:
        """Take in a record of the log: before `go_live` what was read, later offsets that were written."""
        match record:
            case GroupRecord():
                self._apply_metadata(record.metadata)
            case OffsetRecord(producer_id=None):
                self.offsets.apply(record.partition, record.committed)
            case OffsetRecord(producer_id=int(producer_id)):
                self.offsets.apply_transactional(producer_id, record.partition, record.committed)
                self._surroundings.in_transaction(producer_id, self.group_id)

    def go_live(self) -> None:
        """The log was read to its end: sessions run from now on."""
        self.tell(Loaded())

    def _apply_metadata(self, metadata: GroupMetadata | None) -> None:
        if metadata is None:
            self.membership = Membership(self._surroundings.config)
        else:
            self.membership.apply(metadata)

    # Membership

    def tell(self, event: Event) -> None:
        """Let the machine handle an event and do what it decides."""
        self._perform(self.membership.handle(event, self._surroundings.clock.now_ms()))
        self._check_disposable()

    def _perform(self, effects: Effects) -> None:
        for timer_effect in effects.timers:
            match timer_effect:
                case SetTimer():
                    self._set_timer(timer_effect)
                case CancelTimer():
                    self._deadlines.cancel(timer_effect.timer)
                case _:
                    assert_never(timer_effect)
        for reply in effects.replies:
            self._surroundings.waiters.answer(reply)
        for store in effects.stores:
            record = GroupRecord(group_id=self.group_id, metadata=store.metadata)
            self._surroundings.writer.submit([record], partial(self._stored, store))
        for fact in effects.facts:
            _log.info(fact.name, group=self.group_id, **fact.details)

    def _stored(self, store: Store, error: ErrorCode) -> None:
        self.tell(Stored(store=store, error=STORE_ERRORS.get(error, error)))

    def _check_disposable(self) -> None:
        if self.membership.is_disposable and self.offsets.is_empty:
            self._surroundings.on_disposable(self)

    # Timers: one wake-up for the earliest deadline; it comes too early where that deadline was moved

    def _set_timer(self, effect: SetTimer) -> None:
        now_ms = self._surroundings.clock.monotonic_ms()
        self._deadlines.set(effect.timer, effect.delay_ms, now_ms)
        if self._wake is None or now_ms + effect.delay_ms < self._wake_due_ms:
            self._wake_at(now_ms + effect.delay_ms, now_ms)

    def _wake_at(self, due_ms: int, now_ms: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_due_ms = due_ms
        self._wake = asyncio.get_running_loop().call_later(max(due_ms - now_ms, 0) / 1000, self._woken)

    def _woken(self) -> None:
        self._wake = None
        while (timer := self._deadlines.pop_due(self._surroundings.clock.monotonic_ms())) is not None:
            self.tell(TimerFired(timer=timer))
        self._wake_for_next()

    def _wake_for_next(self) -> None:
        due_ms = self._deadlines.next_due_ms
        if due_ms is not None and (self._wake is None or due_ms < self._wake_due_ms):
            self._wake_at(due_ms, self._surroundings.clock.monotonic_ms())

    def _stop_timers(self) -> None:
        self._deadlines.clear()
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

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
        retention = retention_of(self.standing, self._surroundings.config.offsets_retention_ms)
        expired = self.offsets.expired(retention, now_ms) if retention is not None else []
        if expired:
            _log.info("offsets_expired", group=self.group_id, count=len(expired))
        nothing_left = len(expired) == len(self.offsets) and self.offsets.is_settled
        if nothing_left and self.membership.is_deserted:
            self.delete()
        elif expired:
            self.delete_offsets(expired)

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
        tombstones.append(GroupRecord(group_id=self.group_id, metadata=None))
        self.tell(Deleted())

        def done(error: ErrorCode) -> None:
            stored = self.standing.stored
            self._apply_metadata(None)
            if error is not ErrorCode.NONE and stored is not None:
                self._apply_metadata(stored)
                self.go_live()
            elif error is ErrorCode.NONE:
                self.offsets = Offsets(self._surroundings.config.offset_metadata_size_max)
                _log.info("group_deleted", group=self.group_id)
            if not result.done():
                result.set_result(COMMIT_ERRORS.get(error, error))
            self._check_disposable()

        self._surroundings.writer.submit(tombstones, done)
        return result

    def leave_node(self) -> None:
        """This node no longer coordinates the group: waiters are sent away, timers stop."""
        self._perform(self.membership.handle(CoordinatorMoved(), self._surroundings.clock.now_ms()))
        self._stop_timers()
