"""From changes to a new epoch, from the epoch to a target for every member, from there to what each has."""

from __future__ import annotations

from collections.abc import Callable

from broker.groups.consumer_groups.assignors import ASSIGNORS, MemberSpec
from broker.groups.consumer_groups.config import ConsumerGroupConfig
from broker.groups.consumer_groups.events import RevocationTimer
from broker.groups.consumer_groups.members import Assignment, MemberState, Partitions
from broker.groups.consumer_groups.patterns import Pattern
from broker.groups.consumer_groups.reconciliation import Target, next_assignment
from broker.groups.consumer_groups.records import (
    GroupEpoch,
    MemberAssignment,
    MemberTarget,
    PatternResolution,
    ResolvedPattern,
    SubscribedTopics,
    TargetEpoch,
)
from broker.groups.consumer_groups.round import Round
from broker.groups.consumer_groups.topics import Topic, Topics


class Patterns:
    """Expressions that members sent, ready to match, and when they were matched last.

    They are matched when topics have come or gone, and every now and then for what members may see: that may
    have changed.
    """

    def __init__(self) -> None:
        self._ready: dict[str, Pattern] = {}
        self._topics: Topics | None = None
        self._matched_at_ms = 0

    def are_due(self, topics: Topics, now_ms: int, interval_ms: int) -> bool:
        """Whether they are to be matched anew, if there are any."""
        if topics is not self._topics:
            return True
        return bool(self._ready) and not 0 <= now_ms - self._matched_at_ms < interval_ms

    def note_matched(self, topics: Topics, now_ms: int) -> None:
        """All of them have been matched with these topics."""
        self._topics, self._matched_at_ms = topics, now_ms

    def forget_matches(self) -> None:
        """What was matched last never was."""
        self._topics = None

    def keep(self, expressions: frozenset[str]) -> None:
        """Be ready for these and no others."""
        self._ready = {each: self._ready.get(each) or Pattern(each) for each in sorted(expressions)}

    def matched(self, expression: str, names: list[str]) -> frozenset[str]:
        """Which of `names` the expression, one of those kept, matches."""
        pattern = self._ready[expression]
        return frozenset(name for name in names if pattern.matches(name))


def refresh_topics(work: Round, patterns: Patterns) -> None:
    """See what members subscribe to now; a change of it is another epoch. Expressions find what the last
    member that asked may see, as in Kafka; they stay as they are where none did.
    """
    _keep_patterns(work, patterns)
    if (may_see := work.last_view) is not None:
        _resolve_patterns(work, patterns, may_see)
    found = (work.topics.named(name) for name in sorted(work.image.all_subscribed_names()))
    topics = tuple(topic for topic in found if topic is not None)
    if topics != work.image.topics:
        work.write(SubscribedTopics(topics=topics))
        work.bumps = True


def _keep_patterns(work: Round, patterns: Patterns) -> None:
    wanted = _wanted_patterns(work)
    for expression in tuple(work.image.patterns):
        if expression not in wanted:
            work.write(PatternResolution(pattern=expression, resolved=None))
    patterns.keep(wanted)


def _wanted_patterns(work: Round) -> frozenset[str]:
    return frozenset(each.pattern for each in work.image.subscriptions.values() if each.pattern)


def _resolve_patterns(work: Round, patterns: Patterns, may_see: Callable[[str], bool]) -> None:
    wanted = _wanted_patterns(work)
    names = [topic.name for topic in work.topics] if wanted else []
    patterns.note_matched(work.topics, work.now_ms)
    for expression in sorted(wanted):
        before = work.image.patterns.get(expression)
        matched = frozenset(filter(may_see, patterns.matched(expression, names)))
        if before is None or before.topics != matched:
            resolved = ResolvedPattern(
                topics=matched,
                version=before.version + 1 if before is not None else 0,
                timestamp_ms=work.now_ms,
            )
            work.write(PatternResolution(pattern=expression, resolved=resolved))


def bump_epoch(work: Round) -> None:
    """The group is at its next epoch."""
    epoch = work.image.group_epoch + 1
    work.write(GroupEpoch(epoch=epoch))
    work.note("group_epoch_bumped", epoch=epoch, members=len(work.image))


def make_targets(work: Round, config: ConsumerGroupConfig) -> None:
    """Give every member a target that is right for the group's epoch."""
    image = work.image
    existing = {topic.name: topic for topic in image.topics}
    wanted: dict[frozenset[str], frozenset[Topic]] = {}
    members = {}
    for member_id, subscription in image.subscriptions.items():
        names = image.subscribed_names(member_id)
        if names not in wanted:
            wanted[names] = frozenset(existing[name] for name in names if name in existing)
        members[member_id] = MemberSpec(
            topics=wanted[names], before=image.target(member_id), instance_id=subscription.instance_id
        )
    preferred = image.preferred_assignor()
    name = preferred if preferred in config.assignors else config.assignors[0]
    for member_id, partitions in ASSIGNORS[name](members).items():
        if not image.has_target(member_id) or partitions != image.target(member_id):
            work.write(MemberTarget(member_id=member_id, partitions=partitions))
    work.write(TargetEpoch(epoch=image.group_epoch))
    work.note("targets_made", epoch=image.group_epoch, assignor=name, members=len(members))


def reconcile(work: Round, member_id: str, owned: Partitions | None) -> Assignment:
    """Let a member go on towards its target as far as it can; returns what it has then."""
    image = work.image
    current = image.assignment(member_id)
    target = Target(
        epoch=image.target_epoch,
        partitions=image.target(member_id),
        is_free=lambda partition: image.is_free(partition, member_id),
    )
    following = next_assignment(current, target, owned)
    if following == current:
        return current
    work.write(MemberAssignment(member_id=member_id, assignment=following))
    if following.state is MemberState.UNREVOKED and not image.subscriptions[member_id].is_classic:
        work.set_timer(RevocationTimer(member_id), image.subscriptions[member_id].rebalance_timeout_ms)
    else:
        work.cancel_timer(RevocationTimer(member_id))
    return following
