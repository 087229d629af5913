"""The state machine of one group of the consumer protocol (KIP-848).

The group is Empty without members, Assigning while its target is older than its epoch, Reconciling while a
member has not all that its target gives it, else Stable; each member is Stable, Unrevoked or Unreleased (see
`members`). Nothing of this is set by hand: it follows from the image, and the image from the records.

Rules that hold throughout:
- A new member, one that leaves, other subscriptions or other topics bump the group's epoch. Targets are made
  anew when a member asks at an epoch that has none.
- A partition belongs to one member at a time: it is given when whoever had it has said that it gave it up, or
  has gone.
- A request with another epoch than the member's is fenced and changes nothing, but for one lost answer.
- Events are handled in rounds: what arrives while one is being stored makes the next one. A round is stored
  as a whole before anyone is told of it, or it never was.
- Every waiter is answered exactly once.

The parts: `heartbeats` and `classic_members` take in what members say, `assigning` makes epochs, targets and
assignments of it, `migration` turns groups into each other, `round` collects what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from broker.errors import ErrorCode
from broker.groups.consumer_groups.assigning import (
    Patterns,
    bump_epoch,
    make_targets,
    reconcile,
    refresh_topics,
)
from broker.groups.consumer_groups.classic_members import (
    answer_heartbeat,
    answer_join,
    answer_sync,
    take_join,
    take_leave,
)
from broker.groups.consumer_groups.config import ConsumerGroupConfig
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
    RoundEffects,
)
from broker.groups.consumer_groups.heartbeats import take_heartbeat
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.consumer_groups.members import MemberState
from broker.groups.consumer_groups.migration import downgraded, downgrades, tombstones
from broker.groups.consumer_groups.records import Change
from broker.groups.consumer_groups.round import Asked, Round
from broker.groups.consumer_groups.topics import TopicDirectory, Topics
from broker.groups.events import Heartbeat, Join, JoinReply, Leave, Loaded, SessionTimer, Sync


class ConsumerGroup:
    """One group. Owned by one driver: `handle` begins a round, `settle` ends it, `apply` replays the log."""

    def __init__(self, config: ConsumerGroupConfig, directory: TopicDirectory) -> None:
        self.image = GroupImage()
        """The group as it stands, the round under way included; to be looked at only."""
        self.config = config
        """What the next round goes by."""
        self._directory = directory
        self._stored = self.image
        self._patterns = Patterns()
        self._topics_seen: Topics | None = None
        self._rejoining: set[str] = set()
        """Classic members that were told to join again."""

    def apply(self, change: Change) -> None:
        """Take in what the log says."""
        self.image.apply(change)

    def handle(
        self, events: Sequence[ConsumerEvent], now_ms: int, *, begin: Sequence[Change] | None = None
    ) -> RoundEffects:
        """Decide. `now_ms` is wall time: it goes into records, and tells when to match expressions. `begin`:
        the changes by which the classic group that this one was becomes it, none where nobody was in it; they
        precede the events.
        """
        work = Round(self.image, self._directory.current(), now_ms)
        if begin is not None:
            self._convert(work, begin)
        handled = 0
        for event in events:
            if self._hands_on(work, event):
                break
            handled += 1
            self._handle(work, event)
            if work.retirement is not None:
                break
        if work.retirement is None:
            self._finish(work)
        else:
            self._send_away(work)
        self.image = work.image
        return work.take(events[handled:])

    def settle(self, *, stored: bool) -> None:
        """The records of the last round are in the log, or are not and never will be: then it never was."""
        if stored:
            self._stored = self.image
        else:
            self.image = self._stored
            self._topics_seen = None
            self._patterns.forget_matches()

    def retire(self, now_ms: int) -> RoundEffects:
        """A round that removes the group, which must be empty, from the log."""
        assert not len(self.image), "a group with members is not deleted"
        work = Round(self.image, self._directory.current(), now_ms)
        self._retire(work, Retirement(metadata=None))
        self.image = work.image
        return work.take(())

    def _convert(self, work: Round, begin: Sequence[Change]) -> None:
        work.write_classic(None)
        for change in begin:
            work.write(change)
        self._run_sessions(work)
        work.note("group_upgraded", members=len(work.image), epoch=work.image.group_epoch)

    def _hands_on(self, work: Round, event: ConsumerEvent) -> bool:
        """Whether a classic member comes to a group that nobody is in: it becomes a classic group."""
        if not isinstance(event, Join) or len(work.image) or work.asked:
            return False
        self._retire(work, Retirement(metadata=None))
        return True

    def _retire(self, work: Round, retirement: Retirement) -> None:
        if work.image.exists:
            for change in tombstones(work.image):
                work.write(change)
        if retirement.metadata is not None:
            work.write_classic(retirement.metadata)
        work.retirement = retirement

    def _handle(self, work: Round, event: ConsumerEvent) -> None:
        match event:
            case ConsumerHeartbeat():
                take_heartbeat(work, event, self.config)
            case Join():
                take_join(work, event, self.config)
            case Sync():
                answer_sync(work, event, self._rejoining)
            case Heartbeat():
                work.hears_of_topics = work.image.exists
                answer_heartbeat(work, event, self._rejoining)
            case Leave():
                take_leave(work, event)
            case MemberTimerFired():
                self._timer_fired(work, event.timer)
            case Loaded():
                self._run_sessions(work)
            case _:
                assert_never(event)
        if work.lost_consumer and downgrades(work.image, self.config):
            metadata = downgraded(work.image, work.topics, work.now_ms)
            work.note("group_downgraded", members=len(work.image), generation=metadata.generation)
            self._retire(work, Retirement(metadata=metadata))

    def _timer_fired(self, work: Round, timer: MemberTimer) -> None:
        member_id = timer.member_id
        if member_id not in work.image:
            return
        match timer:
            case SessionTimer():
                work.remove(member_id, "was not heard of within its session timeout")
            case RevocationTimer():
                if work.image.assignment(member_id).state is MemberState.UNREVOKED:
                    work.remove(member_id, "did not give up its partitions in time")
            case RejoinTimer():
                if member_id in self._rejoining:
                    work.remove(member_id, "did not join again in time")
            case MemberSyncTimer():
                work.remove(member_id, "did not ask for its assignment in time")
            case _:
                assert_never(timer)

    def _run_sessions(self, work: Round) -> None:
        """Sessions run from now on: whoever was alive could not reach us before."""
        for member_id, subscription in work.image.subscriptions.items():
            classic = subscription.classic
            timeout_ms = classic.session_timeout_ms if classic else self.config.session_timeout_ms
            work.set_timer(SessionTimer(member_id), timeout_ms)
            unrevoked = work.image.assignment(member_id).state is MemberState.UNREVOKED
            if unrevoked and classic is None:
                work.set_timer(RevocationTimer(member_id), subscription.rebalance_timeout_ms)

    # The end of a round

    def _finish(self, work: Round) -> None:
        if work.bumps or self._must_look_at_topics(work):
            refresh_topics(work, self._patterns)
            self._topics_seen = work.topics
        if work.bumps:
            bump_epoch(work)
        asked = [each for each in work.asked if self._is_still_in(work, each)]
        if asked and work.image.group_epoch > work.image.target_epoch:
            make_targets(work, self.config)
        for each in asked:
            self._answer(work, each)
        self._rejoining &= work.image.subscriptions.keys()

    def _must_look_at_topics(self, work: Round) -> bool:
        """Whether they have changed since somebody asked, or it is time to match expressions."""
        if (work.asked or work.hears_of_topics) and work.topics is not self._topics_seen:
            return True
        return work.last_view is not None and self._patterns.are_due(
            work.topics, work.now_ms, self.config.regex_refresh_interval_ms
        )

    def _is_still_in(self, work: Round, asked: Asked) -> bool:
        """Whether a member that asked was not removed or replaced by a later event of the round."""
        if asked.member_id in work.image:
            return True
        self._answer_stranger(work, asked)
        return False

    def _answer_stranger(self, work: Round, asked: Asked) -> None:
        if isinstance(asked.event, Join):
            work.reply(
                asked.event.waiter,
                JoinReply(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=asked.event.member_id),
            )
        else:
            work.refuse(asked.event, ErrorCode.UNKNOWN_MEMBER_ID, f"Member {asked.member_id} was removed.")

    def _answer(self, work: Round, asked: Asked) -> None:
        event, member_id = asked.event, asked.member_id
        assigned_before = work.image.assignment(member_id).assigned
        has = reconcile(work, member_id, asked.owned)
        if isinstance(event, Join):
            self._rejoining.discard(member_id)
            answer_join(work, event, member_id)
            return
        work.set_timer(SessionTimer(member_id), self.config.session_timeout_ms)
        work.reply(
            event.waiter,
            ConsumerHeartbeatReply(
                error=ErrorCode.NONE,
                member_id=member_id,
                member_epoch=has.epoch,
                heartbeat_interval_ms=self.config.heartbeat_interval_ms,
                assignment=has.assigned if event.is_full or has.assigned != assigned_before else None,
            ),
        )

    def _send_away(self, work: Round) -> None:
        """The group becomes a classic one: who asked in this round asks again."""
        for asked in work.asked:
            if isinstance(asked.event, Join):
                work.reply(
                    asked.event.waiter,
                    JoinReply(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=asked.member_id),
                )
            else:
                self._answer_stranger(work, asked)
