"""What notes at a destination say of a route's partitions."""

from __future__ import annotations

from broker.types import TopicPartition
from mirrormaker.audit.notes import lost_ranges, noted_ranges, truncations
from mirrormaker.audit.ranges import Range
from mirrormaker.flow.losses import Loss, describe_loss
from mirrormaker.flow.skips import describe_skip
from mirrormaker.flow.trouble import Divergence, diverged, went_back
from mirrormaker.topology.model import RouteName

ROUTE, SOURCE = RouteName("a"), TopicPartition("flights", 1)


def test_what_may_be_lost_is_told_apart_from_what_was_left_out() -> None:
    key = {"route": ROUTE, "topic": "flights", "partition": 1, "offset": 5}
    entries = [
        (key, {"reason": "oversize"}),
        describe_loss(ROUTE, Loss(SOURCE, 5, 9), 0),
        describe_loss(ROUTE, Loss(SOURCE, 7, 12), 0),
        describe_loss(RouteName("other"), Loss(SOURCE, 50, 60), 0),
    ]
    assert noted_ranges(entries, ROUTE) == {SOURCE: [Range(5, 6)]}
    assert lost_ranges(entries, ROUTE) == {SOURCE: [Range(5, 12)]}


def test_less_that_is_lost_from_the_same_offset_another_time_stands_beside_what_was() -> None:
    kept = [describe_loss(ROUTE, Loss(SOURCE, 5, end), 0) for end in (12, 7)]
    assert kept[0][0] != kept[1][0]
    assert lost_ranges(kept, ROUTE) == {SOURCE: [Range(5, 12)]}


def test_what_a_source_lost_does_not_explain_that_records_are_absent_which_have_its_offsets_since() -> None:
    truncated = describe_skip(ROUTE, went_back(SOURCE, 5, (5, 9)), 0)
    assert noted_ranges([truncated], ROUTE) == {}
    assert lost_ranges([truncated], ROUTE) == {}


def test_notes_that_somebody_else_wrote_are_passed_over() -> None:
    key = {"route": ROUTE, "topic": "flights", "partition": 1, "offset": 5}
    for reason in ([], {}, None, 7):
        entries = [({**key, "offset": "5"}, {"reason": reason}), (key, {"reason": reason, "lost": [[], {}]})]
        assert truncations(entries, ROUTE) == lost_ranges(entries, ROUTE) == {}
        assert noted_ranges(entries, ROUTE) == {SOURCE: []}


def test_what_a_source_lost_up_to_one_offset_another_time_stands_beside_what_it_had_lost() -> None:
    notes = [
        describe_skip(ROUTE, trouble, 0)
        for end in (90, 60)
        if (trouble := diverged(SOURCE, 100, None, Divergence(epoch=1, end_offset=end))) is not None
    ]
    assert notes[0][0] != notes[1][0]
    assert [each.lost for each in truncations(notes, ROUTE)[SOURCE]] == [Range(90, 100), Range(60, 100)]


def test_what_a_source_lost_twice_behind_a_position_that_went_back_stands_as_two_notes() -> None:
    lost = [(80, 100), (60, 70)]
    notes = [describe_skip(ROUTE, went_back(SOURCE, 50, each), 0) for each in lost]
    assert notes[0][0] != notes[1][0]
    assert [each.lost for each in truncations(notes, ROUTE)[SOURCE]] == [Range(*each) for each in lost]
