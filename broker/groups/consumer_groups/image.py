"""A consumer group as the log says it is: changed by `apply` alone, live and in recovery alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import TypeVar, assert_never

from broker.groups.consumer_groups.members import (
    NEW_MEMBER,
    NOTHING,
    Assignment,
    MemberState,
    Partitions,
    Subscription,
    TopicIdPartition,
)
from broker.groups.consumer_groups.records import (
    Change,
    GroupEpoch,
    MemberAssignment,
    MemberSubscription,
    MemberTarget,
    PatternResolution,
    ResolvedPattern,
    SubscribedTopics,
    TargetEpoch,
)
from broker.groups.consumer_groups.topics import Topic

Value = TypeVar("Value")


class GroupState(Enum):
    """The value is the name that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment is older than the group's epoch."""
    RECONCILING = "Reconciling"
    """Some member has not reached its target."""
    STABLE = "Stable"


class GroupImage:
    """Members, epochs and assignments of one group. A record about a member that the log has no subscription
    of (compaction may leave one behind) is kept but counts for nothing.
    """

    def __init__(self) -> None:
        self.epoch: int | None = None
        """None: there is no group."""
        self.target_epoch = 0
        self.topics: tuple[Topic, ...] = ()
        self.subscriptions: dict[str, Subscription] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self._targets: dict[str, Partitions] = {}
        self._assignments: dict[str, Assignment] = {}
        self._static: dict[str, str] = {}
        self._owners: dict[TopicIdPartition, str] = {}

    def copy(self) -> GroupImage:
        """An image of its own that says the same."""
        copied = GroupImage()
        copied.epoch, copied.target_epoch, copied.topics = self.epoch, self.target_epoch, self.topics
        copied.subscriptions, copied.patterns = dict(self.subscriptions), dict(self.patterns)
        copied._targets, copied._assignments = dict(self._targets), dict(self._assignments)
        copied._static, copied._owners = dict(self._static), dict(self._owners)
        return copied

    # What can be asked

    def __len__(self) -> int:
        """How many members there are."""
        return len(self.subscriptions)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.subscriptions

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self.subscriptions))

    @property
    def exists(self) -> bool:
        """Whether the log knows a group of this kind."""
        return self.epoch is not None

    @property
    def group_epoch(self) -> int:
        """The epoch, 0 where there is no group yet."""
        return self.epoch or 0

    @property
    def state(self) -> GroupState:
        if not self.subscriptions:
            return GroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(self.assignment(member_id).is_reconciled_to(self.target_epoch) for member_id in self):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> str | None:
        """The member with this instance id."""
        return self._static.get(instance_id) if instance_id is not None else None

    def assignment(self, member_id: str) -> Assignment:
        """What a member has; one that is not known is as good as new."""
        return self._assignments.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Partitions:
        """What a member is to have."""
        return self._targets.get(member_id, NOTHING)

    def has_target(self, member_id: str) -> bool:
        """Whether a target was ever made for the member."""
        return member_id in self._targets

    def is_free(self, partition: TopicIdPartition, member_id: str) -> bool:
        """Whether nobody but `member_id` has the partition."""
        return self._owners.get(partition, member_id) == member_id

    def awaits_others(self, member_id: str) -> bool:
        """Whether something of the member's target is still another's."""
        assignment = self.assignment(member_id)
        if assignment.state is not MemberState.UNRELEASED:
            return False
        missing = self.target(member_id) - assignment.assigned
        return any(not self.is_free(partition, member_id) for partition in missing)

    def subscribed_names(self, member_id: str) -> frozenset[str]:
        """Every topic that a member wants, whether it exists or not."""
        subscription = self.subscriptions[member_id]
        resolved = self.patterns.get(subscription.pattern) if subscription.pattern else None
        return subscription.topics | resolved.topics if resolved is not None else subscription.topics

    def all_subscribed_names(self) -> frozenset[str]:
        """Every topic that some member wants."""
        return frozenset().union(*(self.subscribed_names(member_id) for member_id in self))

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None when none asks for one."""
        votes = Counter(each.assignor for each in self.subscriptions.values() if each.assignor is not None)
        return votes.most_common(1)[0][0] if votes else None

    # What changes it

    def apply(self, change: Change) -> None:
        """Take in one record."""
        match change:
            case GroupEpoch():
                self.epoch = change.epoch
            case SubscribedTopics():
                self.topics = change.topics or ()
            case MemberSubscription():
                self._apply_subscription(change.member_id, change.subscription)
            case TargetEpoch():
                self.target_epoch = change.epoch or 0
            case MemberTarget():
                _put(self._targets, change.member_id, change.partitions)
            case MemberAssignment():
                self._apply_assignment(change.member_id, change.assignment)
            case PatternResolution():
                _put(self.patterns, change.pattern, change.resolved)
            case _:
                assert_never(change)

    def _apply_subscription(self, member_id: str, subscription: Subscription | None) -> None:
        before = self.subscriptions.pop(member_id, None) if subscription is None else None
        if before is not None and self._static.get(before.instance_id or "") == member_id:
            del self._static[before.instance_id or ""]
        if subscription is not None:
            self.subscriptions[member_id] = subscription
            if subscription.instance_id is not None:
                self._static[subscription.instance_id] = member_id

    def _apply_assignment(self, member_id: str, assignment: Assignment | None) -> None:
        before = self._assignments.pop(member_id, None)
        for partition in before.held if before is not None else ():
            if self._owners.get(partition) == member_id:
                del self._owners[partition]
        if assignment is not None:
            self._assignments[member_id] = assignment
            for partition in assignment.held:
                self._owners[partition] = member_id


def _put(table: dict[str, Value], key: str, value: Value | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
