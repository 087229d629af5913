"""Records that no record of their lane belongs to, and where the source has what they are copies of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.findings import Findings
from mirrormaker.audit.lane_runs import Pass, may_lack
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.strangers import Origin, Strangers
from mirrormaker.topology.model import Delivery
from tests.audit.views import lane

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
(KNOWN,) = lane((0, 0, 8))


def named(origin: Origin | None, *, may_repeat: bool, known: Pass | None = None) -> str:
    """What a record is that stands behind all that is known."""
    findings = Findings()
    terms = LaneTerms(source=SOURCE, destination=DESTINATION, delivery=Delivery.AT_LEAST_ONCE)
    strangers = Strangers(terms, findings, known, DestinationIndex([] if known is None else [known]))
    strangers.items = [Item(9, 7, 7, 7, may_repeat=may_repeat)]
    strangers.name({} if origin is None else {7: origin})
    (name,) = [each.kind.value for each in findings.differences] or [each.value for each in findings.outcomes]
    return name


@pytest.mark.parametrize(
    ("place", "is_behind", "may_repeat", "name"),
    [
        (4, False, True, "repeated"),
        (None, True, True, "repeated"),
        (4, False, False, "doubled"),
        (None, False, True, "unexplained"),
    ],
)
def test_a_copy_of_a_record_that_belongs_to_another_partition_now_is_explained_by_that(
    place: int | None, is_behind: bool, may_repeat: bool, name: str
) -> None:
    origin = Origin(SOURCE, 3, place, is_behind, is_elsewhere=True)
    assert named(origin, may_repeat=may_repeat) == name


@pytest.mark.parametrize(
    ("place", "may_repeat", "has_ledger", "name"),
    [
        (4, True, True, "repeated"),
        (4, False, True, "doubled"),
        (None, True, True, "repeated"),
        (None, False, True, "unexplained"),
        (None, True, False, "unexplained"),
    ],
)
def test_a_copy_of_what_filters_let_go_is_a_mirrors_of_before_they_came_or_comes_from_nowhere(
    place: int | None, may_repeat: bool, has_ledger: bool, name: str
) -> None:
    origin = Origin(SOURCE, 3, place, is_filtered=True)
    assert named(origin, may_repeat=may_repeat, known=KNOWN if has_ledger else None) == name


@pytest.mark.parametrize(
    ("delivery", "lost", "may_be_untold", "place", "names"),
    [
        (Delivery.AT_MOST_ONCE, (), True, 12, ["repeated", "doubled"]),
        (Delivery.EXACTLY_ONCE, (Range(3, 4),), True, 12, ["repeated", "doubled"]),
        (Delivery.EXACTLY_ONCE, (), True, 12, ["doubled", "doubled"]),
        (Delivery.AT_MOST_ONCE, (), False, 12, ["doubled", "doubled"]),
        (Delivery.AT_MOST_ONCE, (), True, None, ["doubled", "doubled"]),
    ],
)
def test_what_at_most_once_did_not_write_down_is_repeated_once_where_it_was_copied_again(
    delivery: Delivery, lost: Sequence[Range], may_be_untold: bool, place: int | None, names: list[str]
) -> None:
    """Also where it is named in the end, and the other was long before."""
    findings = Findings()
    terms = LaneTerms(source=SOURCE, destination=DESTINATION, delivery=delivery, lost=lost)
    strangers = Strangers(terms, findings, KNOWN, DestinationIndex([KNOWN]))
    for at in (9, 10):
        strangers.items = [Item(at, 7, 7, 7, may_repeat=False)]
        strangers.name({7: Origin(SOURCE, 3, place, may_be_untold=may_be_untold)})
    told = {each.value: count for each, count in findings.outcomes.items()}
    told |= {each.value: count for each, count in findings.differing.items()}
    assert told == Counter(names)


def test_what_a_process_may_have_left_at_a_place_lies_between_those_around_it() -> None:
    passes = lane((0, 0, 10), (20, 20, 10), (0, 40, 40))
    assert [each for each in range(40) if may_lack(passes, each, 15)] == list(range(10, 20))
    assert [each for each in range(35) if may_lack(passes, each, 30)] == list(range(30, 35))
    assert not may_lack(lane((0, 5, 10)), 12, 3), "nothing is known before it"
