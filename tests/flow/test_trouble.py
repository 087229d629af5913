"""What it means that a source has not what was asked for, and what a route does about it."""

from __future__ import annotations

from dataclasses import fields, replace
from uuid import UUID

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.remedies import FAILURES_BEFORE_FULL, Remedy, remedy_for
from mirrormaker.flow.trouble import (
    WHOLE_TOPIC,
    Divergence,
    SourceRange,
    TroubleKind,
    diverged,
    out_of_range,
    place_name,
    policy_for,
    recreated,
    refused,
)
from mirrormaker.topology.model import FailurePolicies, FailurePolicy

SOURCE = TopicPartition("flights", 0)
GAP, TRUNCATED = TroubleKind.SOURCE_GAP, TroubleKind.SOURCE_TRUNCATED


@pytest.mark.parametrize(
    ("position", "epoch", "found", "kind", "resume_at", "lost"),
    [
        (5, -1, (10, 20), GAP, 10, (5, 10)),
        (5, 3, (10, 20), GAP, 10, (5, 10)),
        (25, -1, (10, 20), TRUNCATED, 20, (20, 25)),
        (25, 3, (0, 0), TRUNCATED, 0, (0, 25)),
        (15, 3, (10, 20), TRUNCATED, 15, None),
    ],
)
def test_a_position_out_of_range_is_a_gap_or_a_truncation(
    position: int,
    epoch: int,
    found: tuple[int, int],
    kind: TroubleKind,
    resume_at: int,
    lost: tuple[int, int] | None,
) -> None:
    trouble = out_of_range(SOURCE, position, epoch, SourceRange(start=found[0], end=found[1]))
    assert trouble is not None
    assert (trouble.kind, trouble.position, trouble.resume_at, trouble.lost) == (
        kind,
        position,
        resume_at,
        lost,
    )


@pytest.mark.parametrize("position", [10, 15, 20])
def test_a_position_that_is_in_range_again_is_no_trouble(position: int) -> None:
    assert out_of_range(SOURCE, position, -1, SourceRange(start=10, end=20)) is None


@pytest.mark.parametrize(
    ("epoch_end", "end", "resume_at"),
    [
        (None, 90, 90),  # the epoch that was read goes on to 90 only
        (80, 60, 60),  # the newer epoch is not known, the older one ends before it began
        (80, 85, 80),  # ours began at 80: nothing of it is there, wherever the older one ends
        (110, 105, None),  # it was read, and given back: what comes next is there
        (None, 100, None),
        (None, 120, None),
    ],
)
def test_a_log_that_parts_from_what_was_read_says_where(
    epoch_end: int | None, end: int, resume_at: int | None
) -> None:
    trouble = diverged(SOURCE, 100, epoch_end, Divergence(epoch=6, end_offset=end))
    if resume_at is None:
        assert trouble is None
        return
    assert trouble is not None
    assert (trouble.kind, trouble.resume_at, trouble.lost) == (TRUNCATED, resume_at, (resume_at, 100))


def test_another_topic_begins_at_its_own_start() -> None:
    trouble = recreated(SOURCE, 100, SourceRange(start=3, end=9), NO_TOPIC_ID)
    assert (trouble.kind, trouble.position, trouble.resume_at) == (TroubleKind.TOPIC_RECREATED, 100, 3)


def test_a_topic_that_was_made_anew_is_the_same_wherever_it_is_met_and_other_troubles_are_not() -> None:
    found, one, other = SourceRange(start=0, end=9), TopicId(UUID(int=1)), TopicId(UUID(int=2))
    trouble = recreated(SOURCE, 100, found, one)
    assert trouble.is_same(recreated(SOURCE, 0, found, one))
    assert not trouble.is_same(recreated(SOURCE, 100, found, other))
    assert trouble.is_same(recreated(SOURCE, 100, found, NO_TOPIC_ID))
    assert not trouble.is_same(recreated(SOURCE, 0, found, NO_TOPIC_ID))
    gaps = [replace(trouble, kind=TroubleKind.SOURCE_GAP, position=at, topic_id=None) for at in (100, 0)]
    assert [gaps[0].is_same(each) for each in (*gaps, trouble)] == [True, False, False]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TroubleKind.UNAUTHORIZED),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, TroubleKind.UNAUTHORIZED),
        (ErrorCode.KAFKA_STORAGE_ERROR, TroubleKind.DESTINATION_FULL),
        (ErrorCode.MESSAGE_TOO_LARGE, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, None),
    ],
)
def test_refusals_that_a_policy_is_about(code: ErrorCode, kind: TroubleKind | None) -> None:
    trouble = refused(SOURCE, 7, ProtocolError(code), "destination jfk.flights-0")
    assert (trouble.kind if trouble else None) is kind


def test_a_disk_that_goes_on_refusing_is_taken_for_full() -> None:
    code = ErrorCode.KAFKA_STORAGE_ERROR
    remedies = [remedy_for(code, several_batches=True, failures=count) for count in range(1, 7)]
    assert remedies == [Remedy.REPEAT] * (FAILURES_BEFORE_FULL - 1) + [Remedy.PAUSE] * 2


def test_every_kind_has_the_policy_of_its_name() -> None:
    assert {kind.value for kind in TroubleKind} == {field.name for field in fields(FailurePolicies)}
    for kind in frozenset(TroubleKind) - {TroubleKind.RECORD_ERROR}:
        chosen = FailurePolicies(**{kind.value: FailurePolicy.FAIL})
        assert policy_for(kind, chosen) is FailurePolicy.FAIL
    assert policy_for(TroubleKind.RECORD_ERROR, FailurePolicies()) is FailurePolicy.PAUSE_PARTITION


def test_what_befell_a_topic_as_a_whole_is_told_of_the_topic() -> None:
    assert place_name(TopicPartition("flights", 3)) == "flights-3"
    assert place_name(TopicPartition("flights", WHOLE_TOPIC)) == "flights"
