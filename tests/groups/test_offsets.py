"""Committed offsets: commits under way, expiry by what the group is, transactions."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.groups.offsets import NOT_COMMITTED, CommittedOffset, Offsets
from broker.groups.retention import Retention, retention_of
from broker.types import TopicPartition
from tests.groups.scripted_group import NO_DELAY, ScriptedGroup

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WEEK_MS = 7 * 24 * 3_600_000


def committed_at(timestamp_ms: int, *, expires_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset=1, commit_timestamp_ms=timestamp_ms, expire_timestamp_ms=expires_ms)


def offsets_of(**at_ms: int) -> Offsets:
    offsets = Offsets(4_096)
    for name, timestamp_ms in at_ms.items():
        offsets.apply(TopicPartition(name[0], int(name[1])), committed_at(timestamp_ms))
    return offsets


def test_what_was_asked_for_is_fetched_and_everything_when_nothing_is_named() -> None:
    offsets = offsets_of(a0=1, b0=2)
    assert offsets.fetch([A0, A1]) == {A0: committed_at(1), A1: NOT_COMMITTED}
    assert offsets.fetch(None).keys() == {A0, B0}
    assert (NOT_COMMITTED.offset, NOT_COMMITTED.leader_epoch, NOT_COMMITTED.metadata) == (-1, -1, "")


def test_a_tombstone_forgets_an_offset() -> None:
    offsets = offsets_of(a0=1)
    offsets.apply(A0, None)
    offsets.apply(A1, None)
    assert offsets.is_empty


def test_metadata_that_is_too_long_is_refused_for_its_partition_only() -> None:
    offsets = Offsets(5)
    commit = {
        A0: CommittedOffset(offset=1, metadata="12345"),
        A1: CommittedOffset(offset=1, metadata="123456"),
    }
    assert offsets.errors(commit) == {A1: ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_offsets_expire_a_retention_time_after_their_commit_unless_a_commit_is_under_way() -> None:
    offsets = offsets_of(a0=0, a1=0, b0=1)
    offsets.begin([A1])
    retention = Retention(retention_ms=1_000)
    assert offsets.expired(retention, 999) == []
    assert offsets.expired(retention, 1_000) == [A0]
    offsets.end([A1])
    assert offsets.expired(retention, 1_001) == [A0, A1, B0]


def test_two_commits_of_a_partition_may_be_under_way() -> None:
    offsets = offsets_of(a0=0)
    offsets.begin([A0])
    offsets.begin([A0])
    offsets.end([A0])
    assert not offsets.is_settled
    offsets.end([A0])
    assert offsets.is_settled


def test_a_retention_asked_for_at_commit_counts_instead() -> None:
    offsets = Offsets(4_096)
    offsets.apply(A0, committed_at(0, expires_ms=50))
    offsets.apply(A1, committed_at(0, expires_ms=5_000))
    assert offsets.expired(Retention(retention_ms=1_000, base_timestamp_ms=0), 1_000) == [A0]


def test_an_emptied_group_counts_from_when_its_last_member_left() -> None:
    group = ScriptedGroup()
    (member,) = group.stable(1)
    group.now_ms += 500
    group.leave(member)
    assert retention_of(group.machine.standing, WEEK_MS) == Retention(
        retention_ms=WEEK_MS, base_timestamp_ms=group.now_ms
    )


def test_consumers_at_work_keep_what_they_subscribe_to() -> None:
    group = ScriptedGroup()
    group.stable(1)
    retention = retention_of(group.machine.standing, WEEK_MS)
    assert retention == Retention(retention_ms=WEEK_MS, kept_topics={"flights"})
    offsets = Offsets(4_096)
    offsets.apply(TopicPartition("flights", 0), committed_at(0))
    offsets.apply(TopicPartition("weather", 0), committed_at(0))
    assert offsets.expired(retention, WEEK_MS) == [TopicPartition("weather", 0)]


def test_a_group_that_nobody_ever_joined_counts_from_each_commit() -> None:
    assert retention_of(ScriptedGroup().machine.standing, WEEK_MS) == Retention(retention_ms=WEEK_MS)


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_nothing_expires_during_a_rebalance_or_under_members_that_are_no_consumers(
    protocol_type: str,
) -> None:
    group = ScriptedGroup(NO_DELAY)
    joined = group.joined(group.join(protocol_type=protocol_type))
    assert retention_of(group.machine.standing, WEEK_MS) is None
    group.share([joined.member_id])
    assert (retention_of(group.machine.standing, WEEK_MS) is None) == (protocol_type == "connect")


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_count_once_it_commits(commits: bool) -> None:
    offsets = offsets_of(a0=1)
    offsets.apply_transactional(7, A0, committed_at(2))
    assert offsets.fetch([A0]) == {A0: committed_at(1)}
    assert not offsets.is_stable(A0)
    assert offsets.is_stable(A1)
    assert offsets.expired(Retention(retention_ms=0), 10**15) == []
    offsets.end_transaction(8, committed=True)
    offsets.end_transaction(7, committed=commits)
    assert offsets.fetch([A0]) == {A0: committed_at(2 if commits else 1)}
    assert offsets.is_stable(A0)


def test_an_offset_that_waits_is_forgotten_when_a_later_one_is_taken_in() -> None:
    offsets = Offsets(4_096)
    offsets.apply_transactional(1, A0, committed_at(1))
    offsets.apply_transactional(1, A1, committed_at(1))
    offsets.apply_transactional(2, A1, committed_at(2))
    assert not offsets.is_stable(A0)
    offsets.apply(A0, committed_at(3))
    assert offsets.is_stable(A0)
    offsets.end_transaction(2, committed=True)
    assert offsets.is_stable(A1)
    offsets.end_transaction(1, committed=True)
    assert offsets.fetch(None) == {A0: committed_at(3), A1: committed_at(2)}


def test_a_commit_of_a_transaction_makes_offsets_unstable_before_the_log_has_it() -> None:
    offsets = Offsets(4_096)
    offsets.begin([A0], transactional=True)
    offsets.begin([A1])
    assert not offsets.is_stable(A0)
    assert offsets.is_stable(A1)
    offsets.end([A0], transactional=True)
    assert offsets.is_stable(A0)
