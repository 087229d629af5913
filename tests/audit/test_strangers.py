"""Records that no record of their lane belongs to, and where the source has what they are copies of."""

from __future__ import annotations

import pytest

from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.findings import Findings
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lane_terms import LaneTerms
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
