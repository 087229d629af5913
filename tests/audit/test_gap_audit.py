"""Records that no page of the ledger knows of, behind those of several lanes that lead to one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from dataclasses import replace
from typing import Any

import pytest

from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import read_header, rebase
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from mirrormaker.audit import gap_audit
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.entries import Entry, Repeaters
from mirrormaker.audit.findings import Findings, Outcome
from mirrormaker.audit.gap_audit import GapAudit
from mirrormaker.audit.ledger_audit import LedgerAudit
from mirrormaker.audit.log_reader import LogReader
from mirrormaker.audit.outcome import PartitionAudit
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.route_view import RouteView
from mirrormaker.topology.model import Delivery
from tests.audit.views import ONE, OTHER, TO, exactly_once_view, lane


def look(
    monkeypatch: pytest.MonkeyPatch,
    view: RouteView,
    strange: Collection[int],
    looked_to: Any = None,
    places: list[int] | None = None,
) -> list[tuple[TopicPartition, int | None, int]]:
    """What is unexplained, where strangers stand at these places: source, place and count. `places`: takes
    where it was looked.
    """

    async def read(_: object, gap: Range, __: object) -> list[Item]:
        if places is not None:
            places.append(gap.first)
        return [Item(each, each, each, 0) for each in strange if gap.first <= each < gap.next]

    async def all_lanes() -> list[Findings]:
        gaps = GapAudit(view, looked_to or {})
        monkeypatch.setattr(gaps, "_read_there", read)
        found = [Findings() for _ in view.partitions]
        for source, findings in zip(view.partitions, found, strict=True):
            await gaps.lane(source, TO, view.passes[source, TO], findings)
        return found

    return [
        (each.source, each.destination_offset, each.count)
        for findings in asyncio.run(all_lanes())
        for each in findings.differences
    ]


def test_every_lane_to_a_partition_is_looked_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    view = exactly_once_view({ONE: lane((0, 0, 2), (2, 6, 2)), OTHER: lane((0, 4, 2), (2, 10, 2))}, 14)
    assert look(monkeypatch, view, [2, 3, 8, 9, 12, 13]) == [(ONE, 2, 2), (ONE, 8, 2), (OTHER, 12, 2)]
    swapped = exactly_once_view({ONE: lane((0, 4, 2), (2, 10, 2)), OTHER: lane((0, 0, 2), (2, 6, 2))}, 14)
    assert look(monkeypatch, swapped, [2, 3, 8, 9, 12, 13]) == [(ONE, 12, 2), (OTHER, 2, 2), (OTHER, 8, 2)]


def test_what_stands_behind_an_open_transaction_is_looked_at_once_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = exactly_once_view({ONE: lane((0, 0, 2), (2, 8, 2))}, 12)
    behind = replace(view, to_ends={TO: 4}, ends={ONE: 9})
    places: list[int] = []
    assert look(monkeypatch, behind, [2, 3, 4, 5], places=places) == [(ONE, 2, 2)]
    assert places == [2]
    gaps = GapAudit(behind, {})
    list(gaps._gaps(ONE, TO, view.passes[ONE, TO]))
    assert gaps.looked_to == {(ONE, TO): 4}
    assert look(monkeypatch, view, [2, 3, 4, 5], gaps.looked_to) == [(ONE, 4, 2)]


def test_what_was_told_of_a_lane_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = exactly_once_view({ONE: lane((0, 0, 2)), OTHER: lane((0, 4, 2))}, 8)
    assert look(monkeypatch, view, [2, 3, 6, 7], {(ONE, TO): 8}) == [(OTHER, 6, 2)]


@pytest.mark.parametrize(
    ("compacted", "may_repeat", "unexplained"),
    [(ONE.topic, True, 0), (ONE.topic, False, 2), ("other", True, 2)],
)
def test_what_a_mirror_left_may_have_been_compacted_away_at_the_source(
    monkeypatch: pytest.MonkeyPatch, compacted: str, may_repeat: bool, unexplained: int
) -> None:
    view = exactly_once_view({ONE: lane((0, 0, 2), (2, 4, 2))}, 6)
    view = replace(
        view,
        route=replace(view.route, delivery=Delivery.AT_LEAST_ONCE),
        compacted_sources=frozenset({compacted}),
    )

    async def read(_: object, gap: Range, __: object) -> list[Item]:
        return [Item(each, each, each, 0, may_repeat=may_repeat) for each in range(gap.first, gap.next)]

    async def find(*_: object) -> dict[int, list[int]]:
        return {}

    async def judge() -> Findings:
        gaps, findings = GapAudit(view, {}), Findings()
        monkeypatch.setattr(gaps, "_read_there", read)
        monkeypatch.setattr(gaps, "_find", find)
        await gaps.lane(ONE, TO, view.passes[ONE, TO], findings)
        return findings

    findings = asyncio.run(judge())
    assert sum(each.count for each in findings.differences) == unexplained
    assert findings.outcomes[Outcome.GONE_AT_SOURCE] == 2 - unexplained


@pytest.mark.parametrize(
    ("delivery", "lost", "unexplained"),
    [
        (Delivery.AT_MOST_ONCE, [], [15]),
        (Delivery.EXACTLY_ONCE, [Range(10, 20), Range(30, 40)], [15]),
        (Delivery.EXACTLY_ONCE, [], [*range(10, 20), *range(30, 40)]),
    ],
    ids=["at most once", "at most once then", "exactly once"],
)
def test_what_at_most_once_did_not_write_down_is_repeated_where_a_seek_had_it_copied_again_and_is_there_once(
    monkeypatch: pytest.MonkeyPatch, delivery: Delivery, lost: list[Range], unexplained: list[int]
) -> None:
    """Of 10 to 19 nothing was written down, nor of 30 to 39, the last; 12 is there in the place of 15."""
    view = exactly_once_view({ONE: lane((0, 0, 10), (20, 20, 10), (0, 40, 40))}, 80)
    view = replace(view, route=replace(view.route, delivery=delivery), lost={ONE: lost})

    async def read(_: object, gap: Range, __: object) -> list[Item]:
        contents = ((place, 12 if place == 15 else place) for place in range(gap.first, gap.next))
        return [Item(place, content, content, 0, may_repeat=False) for place, content in contents]

    async def find(*_: object) -> dict[int, list[gap_audit.Origin]]:
        return {content: [gap_audit.Origin(content, is_filtered=False)] for content in range(40)}

    async def judge() -> Findings:
        gaps, findings = GapAudit(view, {}), Findings()
        monkeypatch.setattr(gaps, "_read_there", read)
        monkeypatch.setattr(gaps, "_find", find)
        assert await gaps.lane(ONE, TO, view.passes[ONE, TO], findings) == []
        return findings

    findings = asyncio.run(judge())
    places = [
        place
        for each in findings.differences
        for place in range(each.destination_offset or 0, (each.destination_offset or 0) + each.count)
    ]
    assert places == unexplained
    assert findings.outcomes[Outcome.REPEATED] == 20 - len(unexplained)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("may_repeat", [True, False])
def test_very_many_records_that_are_alike_are_explained_in_a_moment(
    monkeypatch: pytest.MonkeyPatch, may_repeat: bool
) -> None:
    """As without keys, where the destination gives them its times."""
    count = 20_000
    known = lane((0, 0, 10), (10 + count, 10 + count, 10))
    view = exactly_once_view({ONE: known}, 20 + count)
    view = replace(view, route=replace(view.route, delivery=Delivery.AT_MOST_ONCE))

    async def read(_: object, gap: Range, __: object) -> list[Item]:
        return [Item(each, 0, 0, 0, may_repeat=may_repeat) for each in range(*gap)]

    async def find(*_: object) -> dict[int, list[gap_audit.Origin]]:
        return {0: [gap_audit.Origin(each, is_filtered=False) for each in range(10, 10 + count)]}

    async def judge() -> list[int]:
        gaps = GapAudit(view, {})
        monkeypatch.setattr(gaps, "_read_there", read)
        monkeypatch.setattr(gaps, "_find", find)
        return await gaps.lane(ONE, TO, view.passes[ONE, TO], Findings())

    assert sorted(asyncio.run(judge())) == list(range(10, 10 + count))


def test_a_record_that_stands_where_a_marker_may_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    view = exactly_once_view({ONE: lane((0, 0, 2), (2, 3, 2), (4, 6, 2))}, 9)
    assert look(monkeypatch, view, [5]) == [(ONE, 5, 1)]


@pytest.mark.parametrize(("count", "places"), [(6, 6), (9, 9), (10, 6), (100, 9)])
def test_of_very_many_places_of_markers_some_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, count: int, places: int
) -> None:
    monkeypatch.setattr(gap_audit, "MARKERS_READ_MAX", 8)
    known = lane(*((each, 2 * each, 1) for each in range(count)), (count, 2 * count + 1, 1))
    view = exactly_once_view({ONE: known}, 2 * count + 2)
    looked: list[int] = []
    assert look(monkeypatch, view, [2 * count - 1], places=looked) == [(ONE, 2 * count - 1, 1)]
    assert looked[0] == 2 * count - 1, "longer ones come first"
    assert (len(looked), looked[1]) == (places, 1)


@pytest.mark.parametrize("places", [6, 1])
def test_lanes_share_the_places_of_markers_that_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    monkeypatch.setattr(gap_audit, "MARKERS_OF_ALL_READ_MAX", places)
    one = lane(*((each, 4 * each, 1) for each in range(100)))
    other = lane(*((each, 4 * each + 2, 1) for each in range(100)))
    looked: list[int] = []
    look(monkeypatch, exactly_once_view({ONE: one, OTHER: other}, 400), [], places=looked)
    if places > 2:
        assert len(looked) == places
    else:
        assert len(looked) <= 2, "each lane gets one of them or none, by chance"


def test_places_that_may_not_be_read_are_taken_for_markers_unless_they_are_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def audit(*runs: tuple[int, int, int], end: int) -> PartitionAudit:
        view = exactly_once_view({ONE: lane(*runs)}, end)
        audit = LedgerAudit(view)
        return asyncio.run(audit.partition(ONE, ()))

    asked: list[TopicPartition] = []

    async def refuse(reader: LogReader, _: int) -> None:
        asked.append(ONE)
        raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "fetch of jfk.flights-0")

    monkeypatch.setattr(LogReader, "_ask", refuse)
    audited = audit((0, 0, 2), (2, 3, 2), (4, 6, 2), end=9)
    assert (audited.problem, audited.findings.equal, len(asked)) == (None, 6, 1)
    audited = audit((0, 0, 2), (2, 6, 2), end=9)
    assert audited.problem is not None
    assert "jfk.flights-0 cannot be read" in audited.problem
    assert (audited.findings.equal, audited.findings.has_differences) == (4, False)


def test_what_was_written_to_places_of_other_partitions_is_not_judged_without_reading() -> None:
    """The destination was made anew, and each went on in the places of the other."""
    view = exactly_once_view({ONE: lane((0, 0, 9), (9, 9, 4)), OTHER: lane((0, 9, 4), (4, 0, 9))}, 13)
    audited = asyncio.run(LedgerAudit(view).partition(ONE, ()))
    assert audited.problem == (
        "jfk.flights-0 was made anew, or lost its end: records of several partitions were written to the "
        "places of 13 of this, and --deep says whether they are there"
    )
    again = {ONE: lane((0, 0, 9), (9, 9, 4), (0, 13, 13)), OTHER: lane((0, 9, 4), (4, 0, 9))}
    audited = asyncio.run(LedgerAudit(exactly_once_view(again, 26)).partition(ONE, ()))
    assert audited.problem is None, "all of it has been copied again since"


def test_among_letters_only_those_of_the_route_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is not read for what consumers put aside."""
    view = exactly_once_view({ONE: lane((0, 0, 1), (1, 3, 1))}, 4)
    view = replace(view, letter_topics=frozenset({TO.topic}), repeaters=Repeaters())
    wanted: list[int] = []

    async def entries(_: LogReader) -> AsyncGenerator[Entry]:
        builder = BatchBuilder(size_max=1000, producer_id=1, producer_epoch=0, base_sequence=0)
        builder.append(0, None, b"of a consumer", [("parked.error", b"")])
        builder.append(0, None, b"of the route", [("parked.route", b"a"), ("parked.error", b"")])
        built = builder.build()
        rebase(built, 0, 1, 0)
        yield Entry(memoryview(built), read_header(built), 3)

    async def find(_: object, *asked: Any) -> dict[int, list[gap_audit.Origin]]:
        wanted.extend(asked[-1])
        return {content: [gap_audit.Origin(0, is_filtered=False)] for content in asked[-1]}

    monkeypatch.setattr(LogReader, "entries", entries)
    monkeypatch.setattr(GapAudit, "_find", find)
    findings = Findings()
    asyncio.run(GapAudit(view, {}).lane(ONE, TO, view.passes[ONE, TO], findings))
    assert (len(wanted), +findings.outcomes) == (1, {Outcome.OTHERS: 1, Outcome.REPEATED: 1})
