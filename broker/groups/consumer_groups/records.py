"""The changes of a consumer group that the log keeps, one type for each kind of record.

A value of None is a tombstone: what it was about is gone. Later changes with the same key replace earlier
ones, in one batch as in the compacted log.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.groups.consumer_groups.members import Assignment, Partitions, Subscription
from broker.groups.consumer_groups.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpoch:
    """The group exists and is at this epoch."""

    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedTopics:
    """The subscribed topics that the present epoch knows of, sorted by name."""

    topics: tuple[Topic, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """A member and what it subscribed to."""

    member_id: str
    subscription: Subscription | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpoch:
    """The epoch that the target assignment was made for."""

    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTarget:
    """What a member is to have."""

    member_id: str
    partitions: Partitions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What a member has."""

    member_id: str
    assignment: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPattern:
    """The topics that a regular expression matched; `version` grows with every resolution."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternResolution:
    """A regular expression that members subscribed to, and what it matched."""

    pattern: str
    resolved: ResolvedPattern | None


Change = (
    GroupEpoch
    | SubscribedTopics
    | MemberSubscription
    | TargetEpoch
    | MemberTarget
    | MemberAssignment
    | PatternResolution
)


def key_of(change: Change) -> tuple[type[Change], str]:
    """What the change is about: equal for changes that replace each other."""
    match change:
        case MemberSubscription() | MemberTarget() | MemberAssignment():
            return type(change), change.member_id
        case PatternResolution():
            return type(change), change.pattern
        case _:
            return type(change), ""
