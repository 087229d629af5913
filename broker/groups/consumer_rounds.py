"""The rounds of one consumer group: events go in, records to the log, and answers out once they are there.

One round is under way at a time; what comes meanwhile makes the next one, so that the busier a group is the
more one round holds. A log that refused a round's records leaves the group as it was before; one that was too
slow has them, and may yet commit them, so the group goes on with them while those who asked ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.errors import ErrorCode, WireError
from broker.groups.consumer_groups.events import (
    ConsumerEvent,
    MemberTimer,
    Retirement,
    RoundEffects,
    refusal,
)
from broker.groups.consumer_groups.group import ConsumerGroup
from broker.groups.consumer_groups.records import Change
from broker.groups.events import Loaded, Timer
from broker.groups.group_timers import GroupTimers
from broker.groups.log_codec import ConsumerGroupRecord, GroupRecord, LogRecord
from broker.groups.log_errors import STORE_ERRORS
from broker.groups.surroundings import Surroundings
from broker.telemetry import logger

_log = logger("groups")

ROUND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **STORE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What members are told when their round could not be stored; other codes go through."""

_IN_THE_LOG = frozenset(
    {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""Outcomes of an append after which the leader's log has the records."""


class ConsumerRounds:
    """Drives the machine of one group; everything happens on the event loop in plain functions."""

    def __init__(
        self,
        group_id: str,
        surroundings: Surroundings,
        timers: GroupTimers[Timer | MemberTimer],
        on_settled: Callable[[ErrorCode, Retirement | None, Sequence[ConsumerEvent]], None],
    ) -> None:
        """`on_settled` is told how each round ended: with the log's error, with what the group becomes if it
        is none of this kind any more, and with the events that were not handled then.
        """
        self.group = ConsumerGroup(surroundings.consumer_config_of(group_id), surroundings.topics)
        self._group_id = group_id
        self._surroundings = surroundings
        self._timers = timers
        self._on_settled = on_settled
        self._waiting: list[ConsumerEvent] = []
        self._is_storing = False
        self._has_left = False

    @property
    def is_idle(self) -> bool:
        """No round is under way."""
        return not self._is_storing

    def tell(self, event: ConsumerEvent) -> None:
        """Handle an event, in this round or the next."""
        self._waiting.append(event)
        self._go_on()

    def convert(self, changes: Sequence[Change], event: ConsumerEvent) -> None:
        """Begin with what a classic group was, and handle the event that made it this one."""
        self._begin([event], changes)

    def delete(self, others: Sequence[LogRecord]) -> None:
        """Remove the group, which must be empty and idle, from the log, and `others` with it."""
        self._perform(self.group.retire(self._surroundings.clock.now_ms()), others)

    def leave_node(self, error: ErrorCode) -> None:
        """This node no longer coordinates the group: whoever waits for the next round is sent away."""
        self._has_left = True
        waiting, self._waiting = self._waiting, []
        self._refuse(waiting, error)

    def _refuse(self, events: Sequence[ConsumerEvent], error: ErrorCode) -> None:
        for event in events:
            reply = refusal(event, error)
            if reply is not None:
                self._surroundings.waiters.answer(reply.waiter, reply.value)

    def _go_on(self) -> None:
        while self._waiting and not self._is_storing and not self._has_left:
            events, self._waiting = self._waiting, []
            self._begin(events)

    def _begin(self, events: Sequence[ConsumerEvent], begin: Sequence[Change] | None = None) -> None:
        self.group.config = self._surroundings.consumer_config_of(self._group_id)
        self._perform(self.group.handle(events, self._surroundings.clock.now_ms(), begin=begin))

    def _perform(self, effects: RoundEffects, others: Sequence[LogRecord] = ()) -> None:
        for change in effects.timers:
            if change.delay_ms is None:
                self._timers.cancel(change.timer)
            else:
                self._timers.set(change.timer, change.delay_ms)
        for fact in effects.facts:
            _log.info(fact.name, group=self._group_id, **fact.details)
        records = [*others, *self._records_of(effects)]
        self._is_storing = True
        if not records:
            self._settle(effects, ErrorCode.NONE)
            return
        try:
            self._surroundings.writer.submit(records, lambda error: self._stored(effects, error))
        except WireError as error:
            _log.warning("round_not_encoded", group=self._group_id, reason=str(error))
            self._settle(effects, ErrorCode.INVALID_REQUEST)

    def _records_of(self, effects: RoundEffects) -> list[LogRecord]:
        """Tombstones of one kind of group come before records of the other."""
        classic = [GroupRecord(group_id=self._group_id, metadata=each) for each in effects.metadata]
        return [
            *(record for record in classic if record.metadata is None),
            *(ConsumerGroupRecord(group_id=self._group_id, change=change) for change in effects.records),
            *(record for record in classic if record.metadata is not None),
        ]

    def _stored(self, effects: RoundEffects, error: ErrorCode) -> None:
        self._settle(effects, error)
        self._go_on()

    def _settle(self, effects: RoundEffects, error: ErrorCode) -> None:
        self._is_storing = False
        is_stored = error in _IN_THE_LOG
        self.group.settle(stored=is_stored)
        for reply in effects.replies:
            told = reply if error is ErrorCode.NONE else reply.refused(ROUND_ERRORS.get(error, error))
            self._surroundings.waiters.answer(told.waiter, told.value)
        handed_on: list[ConsumerEvent] = []
        if is_stored:
            handed_on += effects.unhandled
        else:
            _log.warning("round_not_stored", group=self._group_id, error=error.name)
            self._refuse(effects.unhandled, ROUND_ERRORS.get(error, error))
            self._waiting.insert(0, Loaded())  # timers may have run out in vain
        if not self.group.image.exists:
            handed_on += self._waiting
            self._waiting = []
        self._on_settled(error, effects.retirement if is_stored else None, handed_on)
