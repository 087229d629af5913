"""What a lane should have beside what it has: tables of small logs, and whatever hypothesis does to one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from broker.types import TopicPartition
from mirrormaker.audit.alignment import WINDOW, Alignment, Item, Skips
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.expectation import LanePlaces
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.lane_comparison import PAIRS_MAX, LaneComparison
from mirrormaker.audit.lane_runs import OtherPasses, Pass, last_place, passes_of
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.strangers import Origin, Strangers
from mirrormaker.audit.stretches import stretches_of
from mirrormaker.ledger.page import Page
from mirrormaker.topology.model import Delivery

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)


def items(contents: Iterable[int], first: int = 0, outcome: Outcome | None = None) -> list[Item]:
    return [
        Item(first + index, content, content % 5, content, outcome) for index, content in enumerate(contents)
    ]


def page(first: int, to: int | None, length: int, end: int | None = None) -> Page:
    made = Page(first)
    if to is not None:
        made.add_run(first, to, length)
    made.cover(first + length if end is None else end)
    return made


def compare(
    source: Sequence[Item],
    destination: Sequence[Item],
    known: Pass | None = None,
    *,
    delivery: Delivery = Delivery.AT_LEAST_ONCE,
    others: Sequence[Pass] = (),
    **terms: object,
) -> Findings:
    """As a deep audit does."""
    findings = Findings()
    comparison = LaneComparison(
        LaneTerms(source=SOURCE, destination=DESTINATION, delivery=delivery, **terms),  # type: ignore[arg-type]
        findings,
        known,
        DestinationIndex([*others, *([] if known is None else [known])]),
    )
    left = list(destination)
    for item in source:
        comparison.take_source([item])
        while comparison.wants_destination and left:
            comparison.take_destination([left.pop(0)])
        if not left:
            comparison.end_destination()
    comparison.take_destination(left)
    comparison.end()
    passes = [] if known is None else [known]
    reached = len(source) if known is None else known.source.next
    comparison.strangers.name(
        {
            item.content: Origin(SOURCE, item.offset, last_place(passes, item.offset), item.offset >= reached)
            for item in reversed(source)
        }
    )
    findings.sort()
    return findings


def told(findings: Findings) -> list[tuple[str, int | None, int | None]]:
    return [(each.kind.value, each.source_offset, each.destination_offset) for each in findings.differences]


@pytest.mark.parametrize(
    ("there", "differences"),
    [
        ([0, 1, 2, 3, 4, 5], []),
        ([0, 1, 3, 4, 5], [("missing", 2, None)]),
        ([0, 1, 2, 2, 3, 4, 5], [("doubled", 2, 3)]),
        ([0, 1, 3, 2, 4, 5], [("reordered", 2, 3)]),
        ([0, 1, 77, 2, 3, 4, 5], [("unexplained", None, 2)]),
        ([0, 1, 7, 3, 4, 5], [("altered", 2, 2)]),
        ([3, 4, 5], [("missing", 0, None)]),
        ([], [("missing", 0, None)]),
    ],
)
def test_without_a_ledger_content_and_order_decide(
    there: Sequence[int], differences: list[tuple[str, int | None, int | None]]
) -> None:
    assert told(compare(items(range(6)), items(there))) == differences


def test_a_place_that_the_ledger_knows_decides_between_equal_records() -> None:
    (known,) = passes_of([page(0, 0, 2), page(2, 3, 2)])
    findings = compare(items([9, 9, 9, 9]), items([9, 9, 9, 9, 9]), known)
    assert told(findings) == [("doubled", 0, 2)]
    assert findings.equal == 4


def test_however_many_records_stand_apart_each_is_looked_for() -> None:
    count = PAIRS_MAX + 10
    (known,) = passes_of([page(0, 0, count)])
    late = [item._replace(may_repeat=True) for item in items(range(count), count)]
    findings = compare(items(range(count)), [*items(range(count)), *late], known)
    assert (told(findings), findings.outcomes[Outcome.REPEATED], findings.equal) == ([], count, count)


def test_what_was_copied_again_after_a_crash_is_repeated_where_that_may_be() -> None:
    (known,) = passes_of([page(0, 0, 3), page(3, 5, 3)])
    there = [item._replace(may_repeat=True) for item in items([0, 1, 2, 3, 4, 3, 4, 5])]
    source = items(range(6))
    findings = compare(source, there, known)
    assert (told(findings), findings.outcomes[Outcome.REPEATED], findings.equal) == ([], 2, 6)
    exactly = compare(source, there, known, delivery=Delivery.EXACTLY_ONCE)
    assert told(exactly) == [], "the route was at least once then"
    by_hand = compare(source, [item._replace(may_repeat=False) for item in there], known)
    assert told(by_hand) == [("doubled", 3, 3)], "it is no such producer"
    assert by_hand.differences[0].count == 2
    old = [item._replace(may_repeat=None) for item in there]
    assert told(compare(source, old, known)) == [], "its format names none"
    assert told(compare(source, [*old, old[3]._replace(offset=8)], known)) == [("doubled", 3, 8)]


@pytest.mark.parametrize(
    ("there", "differences"),
    [
        ([9, *range(10)], [("doubled", 9, 0)]),
        ([0, 1, 2, 7, *range(3, 10)], [("doubled", 7, 3)]),
        ([0, 1, 2, 8, 9, *range(3, 10)], [("doubled", 8, 3)]),
    ],
)
def test_a_copy_that_stands_where_the_ledger_knows_of_another_record_is_no_repeated_one(
    there: Sequence[int], differences: list[tuple[str, int | None, int | None]]
) -> None:
    (known,) = passes_of([page(0, 0, 10)])
    findings = compare(items(range(10)), [item._replace(may_repeat=True) for item in items(there)], known)
    assert (told(findings), findings.outcomes, findings.equal) == (differences, {}, 10)


def test_what_a_process_repeats_that_stood_still_while_another_took_over_is_repeated() -> None:
    (known,) = passes_of([page(0, 0, 6)])
    late = [item._replace(may_repeat=True) for item in items([2, 3], 6)]
    findings = compare(items(range(6)), [*items(range(6)), *late], known)
    assert (told(findings), findings.outcomes[Outcome.REPEATED]) == ([], 2)
    by_hand = compare(items(range(6)), items([*range(6), 2]), known)
    assert told(by_hand) == [("doubled", 2, 6)], "it names no producer"


def test_what_is_copied_again_just_now_is_repeated_before_the_ledger_knows_of_it() -> None:
    (known,) = passes_of([page(0, 0, 2)])
    there = [item._replace(may_repeat=True) for item in items([0, 1, 2, 3, 2, 3])]
    source = [*items(range(2)), *items([2, 3, 4], 2, Outcome.PENDING)]
    findings = compare(source, there, known)
    assert (told(findings), findings.outcomes[Outcome.REPEATED]) == ([], 2)
    by_hand = compare(source, [item._replace(may_repeat=False) for item in there], known)
    assert told(by_hand) == [("doubled", 2, 4)], "it names no producer"


def test_what_the_ledger_has_in_another_partition_too_is_repeated() -> None:
    """Copied once more after the topic had got partitions: here only every other record belongs any more."""
    (known,) = passes_of([page(0, 0, 6)])
    (elsewhere,) = passes_of([page(0, 0, 6)])
    places = LanePlaces([range(2)], {0: [known], 1: [elsewhere]})
    assert [places.lane_of(1, 2), places.lane_of(0, 2)] == [1, 0]
    assert (places.is_elsewhere(0, 2), places.is_elsewhere(0, 6)) == (True, False)
    moved: dict[str, object] = {"is_elsewhere": lambda offset: places.is_elsewhere(0, offset)}
    here = [item for item in items(range(6)) if item.offset % 2 == 0]
    for delivery in Delivery:
        findings = compare(here, items(range(6)), known, delivery=delivery, **moved)
        assert (told(findings), findings.outcomes, findings.equal) == ([], {Outcome.REPEATED: 3}, 3)


def test_what_a_pass_left_out_is_in_another_of_the_lane() -> None:
    """Copied once more after its topic had got partitions, or without a filter that there was."""
    left_out = page(0, 0, 1)
    left_out.add_run(2, 1, 1)
    left_out.cover(4)
    passes = passes_of([left_out, page(0, 2, 4)])
    assert len(passes) == 2
    one, other = passes
    source = items(range(4))
    first = compare(source, items([0, 2]), one, kin=OtherPasses.beside(one, passes))
    assert (told(first), first.records, first.equal, first.outcomes) == ([], 4, 2, {})
    terms = {"kin": OtherPasses.beside(other, passes), "repeated_to": 4}
    second = compare(source, items(range(4), 2), other, **terms)
    assert (told(second), second.records, second.equal) == ([], 0, 2)
    assert second.outcomes == {Outcome.REPEATED: 2}
    alike = Findings()
    batches = LaneComparison(
        LaneTerms(source=SOURCE, destination=DESTINATION, delivery=Delivery.AT_LEAST_ONCE, **terms),  # type: ignore[arg-type]
        alike,
        other,
        DestinationIndex(passes),
    )
    batches.take_equal(0, 4)
    assert (alike.records, alike.equal, alike.outcomes) == (0, 2, {Outcome.REPEATED: 2})
    lacking = compare(source, items([0, 2]), one)
    assert told(lacking) == [("missing", 1, None), ("missing", 3, None)], "no pass has them"


def compare_all(
    pages: Sequence[Page], there: Sequence[int], count: int, deleted: Sequence[int] = (), **terms_of_all: Any
) -> Findings:
    """As a deep audit does with all that the ledger knows of a lane; at the source each record is another.
    `deleted`: places where nothing is any more.
    """
    findings, passes, gone = Findings(), passes_of(pages), set[int]()
    source, log = items(range(count)), items(there)
    for each in stretches_of(passes, 0, Range(0, count), Range(0, len(log))):
        assert each.known is not None
        terms = LaneTerms(
            source=SOURCE,
            destination=DESTINATION,
            delivery=Delivery.AT_LEAST_ONCE,
            repeated_to=each.repeated_to,
            kin=OtherPasses.beside(each.known, passes),
            gone=gone,
            **terms_of_all,
        )
        comparison = LaneComparison(terms, findings, each.known, DestinationIndex(passes))
        comparison.take_source(source[slice(*each.source)])
        comparison.take_destination(item for item in log[slice(*each.to)] if item.offset not in deleted)
        comparison.end()
        comparison.strangers.name({})
    return findings


def test_what_a_process_writes_behind_one_that_took_over_is_there_once() -> None:
    """It stood still with 10 to 19 in its hands, and went on with what it had been given since."""
    pages = [page(0, 0, 10), page(20, 10, 10), page(10, 20, 10), page(30, 30, 10)]
    findings = compare_all(pages, [*range(10), *range(20, 30), *range(10, 20), *range(30, 40)], 40)
    assert (told(findings), findings.outcomes, findings.records, findings.equal) == ([], {}, 40, 40)
    again = compare_all(
        [*pages, page(0, 40, 40)],
        [*range(10), *range(20, 30), *range(10, 20), *range(30, 40), *range(40)],
        40,
    )
    assert (told(again), again.outcomes) == ([], {Outcome.REPEATED: 40})
    assert (again.records, again.equal) == (40, 40)


@pytest.mark.parametrize(
    ("deleted", "terms", "repeated", "gone"),
    [
        (range(4), {"destination_start": 4}, 6, 0),
        (range(12), {"destination_start": 12}, 0, 2),
        ([1, 5], {"compacted_to": 20}, 8, 0),
        ([1, 5, 15], {"compacted_to": 20}, 8, 1),
        ([12], {"compacted_to": 20}, 9, 0),
    ],
)
def test_of_records_that_are_there_twice_the_destination_may_have_deleted_either_copy(
    deleted: Sequence[int], terms: dict[str, int], repeated: int, gone: int
) -> None:
    findings = compare_all([page(0, 0, 10), page(0, 10, 10)], [*range(10), *range(10)], 10, deleted, **terms)
    both = sum(each + 10 in deleted for each in deleted)
    assert (told(findings), findings.records, findings.equal) == ([], 10, 10 - both)
    assert +findings.outcomes == +Counter({Outcome.REPEATED: repeated, Outcome.GONE_AT_DESTINATION: gone})


def test_what_stands_in_the_places_of_a_destination_that_was_made_anew_is_nothing_repeated() -> None:
    """It went on there with 20: what stood before is missing, and the rest is as it should be."""
    pages = [page(0, 0, 10), page(20, 0, 5), page(10, 10, 10), page(25, 5, 25)]
    findings = compare_all(pages, range(20, 50), 50)
    assert findings.outcomes == {}
    assert [(each.kind.value, each.source_offset, each.count) for each in findings.differences] == [
        ("missing", 0, 20)
    ]
    assert (findings.records, findings.equal) == (50, 30)
    altered = compare_all(pages, [*range(20, 23), 99, *range(24, 50)], 50)
    altered.sort()
    assert [(each.kind.value, each.source_offset, each.count) for each in altered.differences] == [
        ("missing", 0, 10),
        ("missing", 10, 10),
        ("altered", 23, 1),
    ]


def test_what_is_elsewhere_too_is_repeated_only_where_nobody_else_wrote_to_its_place() -> None:
    (known,), (later,) = passes_of([page(0, 0, 5)]), passes_of([page(50, 3, 4)])
    for others, repeated in (([], 5), ([later], 3)):
        findings = compare([], items(range(5)), known, others=others, is_elsewhere=lambda _: True)
        assert (told(findings), findings.outcomes) == ([], {Outcome.REPEATED: repeated})


@pytest.mark.parametrize(
    ("may_repeat", "kinds"), [(True, []), (False, ["unexplained"]), (None, ["unexplained"])]
)
def test_what_a_mirror_repeated_may_have_been_compacted_away_at_the_source(
    may_repeat: bool | None, kinds: list[str]
) -> None:
    (known,) = passes_of([page(0, 0, 2), page(2, 3, 1)])
    there = [item._replace(may_repeat=may_repeat) for item in items([0, 1, 7, 2])]
    findings = compare(items([0, 1, 2]), there, known, is_source_compacted=True)
    assert [each.kind.value for each in findings.differences] == kinds
    assert findings.outcomes[Outcome.GONE_AT_SOURCE] == (not kinds)
    assert findings.equal == 3


def test_what_came_while_the_audit_began_is_not_looked_for_and_not_missed() -> None:
    (known,) = passes_of([page(0, 0, 5)])
    findings = compare(items(range(5)), items(range(3)), known, written_meanwhile=Range(3, 5))
    assert (told(findings), findings.outcomes[Outcome.PENDING], findings.equal) == ([], 2, 3)
    lost = compare(items(range(5)), items(range(2)), known, written_meanwhile=Range(2, 4))
    assert told(lost) == [("missing", 4, 4)]


def test_what_the_ledger_does_not_know_of_may_stand_where_nothing_is_read_yet() -> None:
    """So many records as there is room for."""
    findings = compare(items(range(8)), items([0, 2, 3]), written_meanwhile=Range(3, 6))
    assert (told(findings), findings.outcomes[Outcome.PENDING]) == (
        [("missing", 1, None), ("missing", 7, None)],
        3,
    )
    (known,) = passes_of([page(0, 0, 2), page(3, 2, 2)])
    findings = compare(
        items(range(7)),
        items([0, 1, 3, 4]),
        known,
        delivery=Delivery.AT_MOST_ONCE,
        written_meanwhile=Range(4, 5),
    )
    assert (told(findings), findings.equal) == ([], 4)
    assert findings.outcomes == {Outcome.LOST: 2, Outcome.PENDING: 1}


def test_what_a_killed_process_brought_behind_records_of_another_lane_is_that_lanes() -> None:
    """At most once nothing of it is copied again; where it stands, the other lane is to judge."""
    (known,) = passes_of([page(0, 0, 2)])
    (other,) = passes_of([page(0, 2, 2)])
    there = items([0, 1, 70, 71, 2, 4])
    own = compare(items(range(5)), there, known, delivery=Delivery.AT_MOST_ONCE, others=[other])
    assert (told(own), own.equal, own.outcomes) == ([], 4, {Outcome.LOST: 1})

    def judge(delivery: Delivery, *offsets: int) -> Findings:
        findings = Findings()
        terms = LaneTerms(source=TopicPartition("flights", 1), destination=DESTINATION, delivery=delivery)
        strangers = Strangers(terms, findings, other, DestinationIndex([known, other]))
        strangers.items = [items([2], offset)[0] for offset in offsets]
        strangers.name({2: Origin(SOURCE, 2, None, is_behind=True)})
        return findings

    beside = judge(Delivery.AT_MOST_ONCE, 4)
    assert (told(beside), beside.outcomes) == ([], {})
    assert told(judge(Delivery.AT_MOST_ONCE, 4, 6)) == [("doubled", 2, 6)], "it is there once more"
    assert told(judge(Delivery.EXACTLY_ONCE, 4)) == [("doubled", 2, 4)]


def test_at_most_once_may_lose_what_the_ledger_does_not_know() -> None:
    (known,) = passes_of([page(0, 0, 2), page(4, 2, 2)])
    lossy = compare(items(range(6)), items([0, 1, 4, 5]), known, delivery=Delivery.AT_MOST_ONCE)
    assert (told(lossy), lossy.outcomes[Outcome.LOST]) == ([], 2)
    assert told(compare(items(range(6)), items([0, 1, 4, 5]), known)) == [("missing", 2, None)]


def test_what_at_most_once_lost_is_not_altered_into_what_another_lane_brought_instead() -> None:
    """Both have the same key, and neither is in the ledger."""
    (known,) = passes_of([page(0, 0, 2), page(3, 3, 2)])
    there = items([0, 1, 7, 3, 4])
    findings = compare(items(range(5)), there, known, delivery=Delivery.AT_MOST_ONCE)
    assert (told(findings), findings.outcomes) == ([("unexplained", 1, 2)], {Outcome.LOST: 1})
    assert told(compare(items(range(5)), there, known)) == [("altered", 2, 2)]


def test_what_is_noted_returned_or_still_to_come_is_no_difference() -> None:
    (known,) = passes_of([page(0, 0, 2, end=5)])
    source = [
        *items([0, 1]),
        *items([2], 2, Outcome.NOTED),
        *items([3], 3, Outcome.RETURNED),
        *items([4], 4),
        *items([5], 5, Outcome.PENDING),
    ]
    findings = compare(source, items([0, 1]), known)
    assert told(findings) == [("missing", 4, None)]
    assert {outcome.value for outcome in findings.outcomes} == {"noted", "returned", "pending"}


def test_a_seek_back_makes_a_pass_of_its_own_and_repeats() -> None:
    first, second = passes_of([page(0, 0, 4), page(2, 4, 4)])
    assert (first.source, second.source) == ((0, 4), (2, 6))
    terms = {"kin": OtherPasses.beside(second, [first, second]), "repeated_to": 4}
    findings = compare(items(range(2, 6), 2), items(range(2, 6), 4), second, others=[first], **terms)
    assert told(findings) == []
    assert (findings.outcomes[Outcome.REPEATED], findings.records, findings.equal) == (2, 2, 2)


def test_what_was_another_lanes_until_the_topic_got_partitions_is_judged_once() -> None:
    """Offsets 3 to 5 were another lane's, which did not come to copy them; 4 and 5 are this one's since."""
    (known,) = passes_of([page(0, 0, 3, end=6), page(4, 3, 3)])
    source = [*items(range(3)), *items(range(4, 7), 4)]
    findings = compare(source, items([0, 1, 2, 4, 5, 6]), known, delivery=Delivery.EXACTLY_ONCE)
    assert (told(findings), findings.equal, findings.outcomes[Outcome.REPEATED]) == ([], 6, 0)


def test_what_either_side_has_deleted_cannot_be_judged() -> None:
    (known,) = passes_of([page(0, 0, 6)])
    trimmed = compare(items(range(6)), items(range(3, 6), 3), known, destination_start=3)
    assert (told(trimmed), trimmed.outcomes[Outcome.GONE_AT_DESTINATION], trimmed.equal) == ([], 3, 3)
    gone = compare(items(range(2, 6), 2), items(range(6)), known)
    assert (told(gone), gone.outcomes[Outcome.GONE_AT_SOURCE], gone.equal) == ([], 2, 4)
    compacted = compare(items(range(6)), items([5], 5), known, compacted_to=6)
    assert (told(compacted), compacted.outcomes[Outcome.GONE_AT_DESTINATION]) == ([], 5)


def test_compaction_explains_nothing_at_the_end_of_the_destination_or_beyond() -> None:
    (known,) = passes_of([page(0, 0, 6)])
    findings = compare(items(range(6)), items([1], 1), known, compacted_to=3)
    assert (told(findings), findings.outcomes) == ([("missing", 3, 3)], {Outcome.GONE_AT_DESTINATION: 2})
    assert findings.differences[0].count == 3
    anew = compare(items(range(6)), [], known)
    assert told(anew) == [("missing", 0, 0)], "it is empty"


def test_compaction_does_not_explain_what_was_never_copied() -> None:
    (known,) = passes_of([page(0, 0, 2, end=3), page(3, 2, 2)])
    findings = compare(items(range(5)), items([4], 3), known, compacted_to=4)
    assert told(findings) == [("missing", 2, None)], "no copy was made"
    assert findings.outcomes == {Outcome.GONE_AT_DESTINATION: 3}


@pytest.mark.parametrize(
    ("second", "end", "is_missing"),
    [
        (page(3, 2, 2), 4, True),
        (page(3, 3, 2), 5, False),
        (page(3, 4, 2), 6, True),
    ],
)
def test_what_the_ledger_lacks_may_have_been_compacted_only_where_it_may_have_stood(
    second: Page, end: int, is_missing: bool
) -> None:
    """Nothing, an offset that nobody has, and two records of another lane stand where it belongs."""
    (known,) = passes_of([page(0, 0, 2), second])
    (other,) = passes_of([page(70, 2, 2)])
    others = [other] if end == 6 else []
    findings = compare(items(range(5)), items([4], end - 1), known, others=others, compacted_to=end)
    assert told(findings) == ([("missing", 2, None)] if is_missing else [])
    assert findings.outcomes[Outcome.GONE_AT_DESTINATION] == (3 if is_missing else 4)


def test_records_of_others_are_nobodys_business_where_others_may_write() -> None:
    (known,) = passes_of([page(0, 1, 2)])
    (other,) = passes_of([page(50, 3, 1)])
    there = items([77, 0, 1, 88, 99])
    shared = compare(items([0, 1]), there, known, others=[other], is_exclusive=False)
    assert (told(shared), shared.outcomes[Outcome.OTHERS]) == ([], 1)
    own = compare(items([0, 1]), items([5, 0, 1, 77]), known)
    assert told(own) == [("unexplained", 1, 3)], "only what stands before all that is known is no difference"


def test_what_two_ends_sent_each_other_untold_is_in_order_though_each_has_its_own_between() -> None:
    """Neither ledger tells of it: a process of both routes was killed. Each end has its own records first."""
    (known,) = passes_of([page(0, 0, 2), page(42, 42, 2)])
    own, others, last = range(20, 40), range(50, 70), [90, 91]
    source = items([0, 1, *own])
    source += items(others, 22, Outcome.RETURNED) + items(last, 42)

    def judge(*there: int) -> Findings:
        return compare(source, items(there), known, delivery=Delivery.AT_MOST_ONCE, is_exclusive=False)

    findings = judge(0, 1, *others, *own, *last)
    assert (told(findings), findings.equal) == ([], 24)
    assert findings.outcomes == {Outcome.RETURNED: 20, Outcome.OTHERS: 20}
    assert told(judge(0, 1, *others, 39, *own[:-1], *last)) == [("reordered", 21, 22)]


@pytest.mark.parametrize(
    ("delivery", "copy", "outcome", "is_doubled"),
    [
        (Delivery.AT_LEAST_ONCE, {"may_repeat": True}, Outcome.REPEATED, False),
        (Delivery.AT_LEAST_ONCE, {"is_own": True}, Outcome.OTHERS, False),
        (Delivery.AT_LEAST_ONCE, {}, Outcome.OTHERS, False),
        (Delivery.AT_LEAST_ONCE, {"may_repeat": None}, Outcome.OTHERS, False),
        (Delivery.EXACTLY_ONCE, {"is_own": True}, None, True),
        (Delivery.EXACTLY_ONCE, {"is_own": True, "may_repeat": True}, Outcome.REPEATED, False),
        (Delivery.EXACTLY_ONCE, {}, Outcome.OTHERS, False),
        (Delivery.EXACTLY_ONCE, {"is_own": True, "content": 77}, Outcome.OTHERS, False),
        (Delivery.AT_MOST_ONCE, {"is_own": True}, None, True),
    ],
)
def test_where_others_may_write_the_producer_tells_what_the_route_wrote_once_more(
    delivery: Delivery, copy: dict[str, Any], outcome: Outcome | None, is_doubled: bool
) -> None:
    (known,) = passes_of([page(0, 0, 3)])
    there = [*items(range(3)), items([1], 3)[0]._replace(**copy)]
    findings = compare(items(range(3)), there, known, delivery=delivery, is_exclusive=False)
    assert told(findings) == ([("doubled", 1, 3)] if is_doubled else [])
    assert (findings.outcomes, findings.equal) == (Counter([outcome] if outcome else []), 3)


def test_behind_records_of_another_route_each_judges_what_is_behind_its_own() -> None:
    (known,) = passes_of([page(0, 0, 2)])
    (other,) = passes_of([page(50, 2, 1)])
    for index in (DestinationIndex([known], [other]), DestinationIndex([other], [known])):
        assert index.is_owned(1)
        assert index.is_owned(2)
        assert list(index.gaps(Range(0, 5))) == [Range(3, 5)]
    index = DestinationIndex([known], [other])
    assert (index.is_neighbour(known, 4), index.is_neighbour(other, 4)) == (True, False)


def test_what_stands_before_all_that_any_lane_knows_was_there_before() -> None:
    """As at most once reads it: what was lost of the beginning may lie there."""
    (known,) = passes_of([page(2, 4, 2)])
    lossy = compare(items(range(4)), items([70, 71, 1, 72, 2, 3]), known, delivery=Delivery.AT_MOST_ONCE)
    assert told(lossy) == []
    assert lossy.outcomes == {Outcome.THERE_BEFORE: 3, Outcome.LOST: 1}
    assert (lossy.records, lossy.equal) == (4, 3)
    (other,) = passes_of([page(50, 1, 1)])
    behind = compare(items(range(2, 4), 2), items([70, 71, 1, 72, 2, 3]), known, others=[other])
    assert (told(behind), behind.outcomes) == ([], {}), "that is for the other to judge"


def test_a_lane_that_the_ledger_has_nothing_of_does_not_judge_what_other_lanes_brought_there() -> None:
    (other,) = passes_of([page(0, 0, 3)])
    for delivery in Delivery:
        idle = compare([], items([7, 8, 9, 10]), others=[other], delivery=delivery)
        assert (told(idle), idle.outcomes) == ([], {})
    equal = compare(items([10]), items([7, 8, 9, 10]), others=[other])
    assert (told(equal), equal.equal) == ([], 1)


def test_where_a_side_begins_later_that_is_found_however_far_it_is() -> None:
    count = 3 * WINDOW
    equal: list[Item] = []
    alignment = Alignment(equal.append, Skips(None, Outcome.GONE_AT_SOURCE))
    alignment.take_source(items(range(2 * WINDOW, count), 2 * WINDOW))
    alignment.take_destination(items(range(count)))
    alignment.end_destination()
    alignment.end_source()
    assert len(equal) == WINDOW
    assert len(alignment.pairs) == 2 * WINDOW
    assert {pair.destination.outcome for pair in alignment.pairs if pair.destination} == {
        Outcome.GONE_AT_SOURCE
    }


@given(
    contents=some.lists(some.integers(0, 1_000), unique=True, max_size=40),
    dropped=some.sets(some.integers(0, 39), max_size=5),
    added=some.dictionaries(some.integers(0, 39), some.integers(2_000, 3_000), max_size=5),
)
def test_every_record_is_counted_once_whatever_was_done(
    contents: list[int], dropped: set[int], added: dict[int, int]
) -> None:
    there = [
        content
        for index, kept in enumerate(contents)
        for content in ([added[index]] if index in added else []) + ([] if index in dropped else [kept])
    ]
    findings = compare(items(contents), items(there))
    kinds = {kind.value: count for kind, count in findings.differing.items()}
    missing = len([index for index in dropped if index < len(contents)])
    extra = len([index for index in added if index < len(contents)])
    altered = kinds.get("altered", 0)
    assert kinds.get("missing", 0) == missing - altered
    assert kinds.get("unexplained", 0) == extra - altered
    assert findings.equal == len(contents) - missing
