"""Where positions of the group go on that are behind what is written, or of a log that is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.books import EpochMark, Reached, Written
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.positions import Place
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.trailing_positions import gone_on, of_gone_logs

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)
ASSIGNMENT = Assignment(source=SOURCE, destinations=(DESTINATION,), bucket=0, position=0)
STARTS = (EpochStart(1, 0), EpochStart(3, 40), EpochStart(4, 60))
KNOWN, UNKNOWN = Reached(80, EpochMark(80, 4), STARTS), Reached(80, EpochMark(70, 4), STARTS)


class Ledger:
    """What is written of the source: copied up to 80, or less."""

    def __init__(self, end: int = 80) -> None:
        self._end = end

    async def gone_on(self, assignments: list[Assignment]) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            each.source: (self._end,) * len(each.destinations)
            for each in assignments
            if any(at < self._end for at in (each.lane_positions or (each.position,)))
        }

    async def written(self, assignments: list[Assignment], _: object) -> Written:
        return Written(stood={each.source: Place((80,), destinations=(DESTINATION,)) for each in assignments})


BOOKS: Any = Ledger()


@pytest.mark.parametrize(
    ("position", "epoch", "lost", "reached", "goes_on"),
    [
        (50, 3, None, KNOWN, (80, 4)),
        (50, 3, (55, 80), KNOWN, (55, 3)),
        (50, 3, (50, 80), KNOWN, None),
        (50, 3, None, UNKNOWN, None),  # a loss of what lies between would not show
        (50, -1, None, UNKNOWN, (80, -1)),  # of a source that tells no epochs
        (50, 3, (55, 80), UNKNOWN, (55, 3)),
    ],
)
def test_what_is_behind_what_was_copied_goes_on_as_far_as_a_loss_would_show(
    position: int, epoch: int, lost: tuple[int, int] | None, reached: Reached, goes_on: tuple[int, int] | None
) -> None:
    point = StartingPoint((position,), leader_epoch=epoch, names_topic=True, lost=lost)
    found = asyncio.run(gone_on(BOOKS, [ASSIGNMENT], {SOURCE: point}, {SOURCE: reached}))
    told = {source: (*each.lanes, each.leader_epoch) for source, each in found.items()}
    assert told == ({} if goes_on is None else {SOURCE: goes_on})
    assert [(each.stored, each.lost) for each in found.values()] == [(position, lost)] * len(found)


@pytest.mark.parametrize(
    ("note", "lanes", "end", "lost", "goes_on"),
    [
        ("45", (50,), 80, None, 80),
        ("45", (50,), 50, None, 50),  # all that was on its way arrived, and nothing more came
        ("45", (50,), 49, None, None),
        ("45", (50,), 45, None, None),
        ("45", (50,), 80, (60, 80), 60),
        ("45", (50,), 80, (50, 80), 50),
        ('{"lanes":[50,70],"to":[["jfk.flights",0,2]],"there":[45,62]}', (50, 70), 80, None, 80),
        ('{"lanes":[50,70],"to":[["jfk.flights",0,2]],"there":[45,62]}', (50, 70), 69, None, None),
    ],
)
def test_what_is_written_to_have_arrived_is_not_lacking_where_a_position_came_back_that_says_so(
    note: str, lanes: tuple[int, ...], end: int, lost: tuple[int, int] | None, goes_on: int | None
) -> None:
    destinations = tuple(DESTINATION._replace(partition=number) for number in range(len(lanes)))
    assignment = replace(ASSIGNMENT, destinations=destinations)
    point = StartingPoint(lanes, note, 3, destinations if len(lanes) > 1 else (), names_topic=True, lost=lost)
    ledger: Any = Ledger(end)
    found = asyncio.run(gone_on(ledger, [assignment], {SOURCE: point}, {SOURCE: KNOWN}))
    told = {source: (each.lanes, each.note) for source, each in found.items()}
    assert told == ({} if goes_on is None else {SOURCE: ((goes_on,) * len(lanes), "")})


def test_what_is_written_of_partitions_that_another_policy_chose_is_not_where_a_position_goes_on() -> None:
    point = StartingPoint((50,), leader_epoch=3, names_topic=True, was_spread=True)
    assert asyncio.run(gone_on(BOOKS, [ASSIGNMENT], {SOURCE: point}, {SOURCE: KNOWN})) == {}


def test_what_is_written_of_a_log_that_is_gone_is_not_where_a_position_of_a_later_one_goes_on() -> None:
    point = StartingPoint((50,), leader_epoch=5, names_topic=True)
    assert asyncio.run(gone_on(BOOKS, [ASSIGNMENT], {SOURCE: point}, {SOURCE: KNOWN})) == {}


@pytest.mark.parametrize(
    ("position", "epoch", "is_gone"),
    [
        (100, 3, True),
        (100, 1, True),
        (61, 3, True),
        (60, 3, False),
        (50, 3, False),
        (100, 4, False),
        (100, -1, False),
    ],
)
def test_a_position_beyond_where_a_newer_epoch_was_copied_is_of_a_log_that_is_gone(
    position: int, epoch: int, is_gone: bool
) -> None:
    point = StartingPoint((position,), "7", epoch, names_topic=True)
    told: list[dict[str, object]] = []

    def note(event: str, **details: object) -> None:
        told.append({"event": event, **details})

    found = asyncio.run(of_gone_logs(BOOKS, [ASSIGNMENT], {SOURCE: point}, {SOURCE: KNOWN}, note))
    expected = point._replace(
        lanes=(80,), note="", leader_epoch=4, destinations=(DESTINATION,), stored=position
    )
    assert found == ({SOURCE: expected} if is_gone else {})
    event = {"event": "position_of_gone_log", "partition": "flights-0", "stored": position, "goes_on": 80}
    assert told == ([event] if is_gone else [])
