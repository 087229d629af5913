"""Positions that went back along with what their source lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.client.asking_leaders import Answers
from broker.client.epoch_ends import EpochEnd
from broker.client.offsets import Listed, OffsetAndTimestamp
from broker.types import TopicPartition
from mirrormaker.flow import lost_ends, partings
from mirrormaker.flow.books import EpochMark, Reached
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.lost_ends import with_lost_ends
from mirrormaker.flow.read_epochs import EpochStart

ONE, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Source:
    """What a source tells of `ONE`, and what it was asked."""

    def __init__(
        self,
        end: int | None,
        epoch_end: EpochEnd | Mapping[int, EpochEnd] | None = None,
        *,
        first_end: int | None = None,
    ) -> None:
        """`epoch_end`: of any epoch, or of each. `first_end`: what it tells instead of its end when it is
        asked first.
        """
        self._end = end
        self._first_end = first_end
        self._epoch_end = epoch_end
        self.asked: list[tuple[str, TopicPartition, int]] = []

    async def list_offsets_found(
        self, _: object, wanted: Mapping[TopicPartition, int], **__: object
    ) -> Listed:
        self.asked += [("end", each, at) for each, at in wanted.items()]
        end, self._first_end = self._end if self._first_end is None else self._first_end, None
        return Answers({each: OffsetAndTimestamp(offset=end) for each in wanted if end is not None}, {})

    async def epoch_ends_found(
        self, _: object, wanted: Mapping[TopicPartition, int], **__: object
    ) -> Answers[EpochEnd]:
        self.asked += [("epoch", each, epoch) for each, epoch in wanted.items()]
        told = self._epoch_end
        ends = {each: told[at] if isinstance(told, Mapping) else told for each, at in wanted.items()}
        return Answers({each: end for each, end in ends.items() if end is not None}, {})


def compare(
    monkeypatch: pytest.MonkeyPatch, told: Source, point: StartingPoint, reached: Reached | None
) -> StartingPoint:
    monkeypatch.setattr(lost_ends, "list_offsets_found", told.list_offsets_found)
    monkeypatch.setattr(partings, "epoch_ends_found", told.epoch_ends_found)
    monkeypatch.setattr(lost_ends, "NEW_LEADER_MS", 1)
    points = {ONE: point, OTHER: StartingPoint((7,))}
    source: Any = None
    found = asyncio.run(with_lost_ends(source, points, {} if reached is None else {ONE: reached}))
    assert found.keys() == points.keys()
    assert found[OTHER] == points[OTHER]
    return found[ONE]


@pytest.mark.parametrize(
    ("position", "reached", "end", "lost"),
    [
        (30, 50, 40, (40, 50)),
        (40, 50, 40, (40, 50)),
        (0, 50, 0, (0, 50)),
        (30, 50, 50, None),  # a process was killed before it committed
        (30, 50, 80, None),
        (45, 50, 40, None),  # which is out of range
        (50, 50, 40, None),
        (60, 50, 40, None),
        (30, 50, None, None),
        (30, None, 40, None),
    ],
)
def test_a_log_that_ends_before_what_was_copied_of_it_has_lost_that(
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    reached: int | None,
    end: int | None,
    lost: tuple[int, int] | None,
) -> None:
    told, point = Source(end), StartingPoint((position, position + 5))
    found = compare(monkeypatch, told, point, None if reached is None else Reached(reached, None))
    assert found == point._replace(lost=lost)
    is_short = end is not None and reached is not None and end < reached
    times = 0 if reached is None or position >= reached else 2 if is_short else 1
    assert told.asked == [("end", ONE, -1)] * times


def test_an_end_that_a_new_leader_tells_too_early_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told, point = Source(50, first_end=40), StartingPoint((30,))
    assert compare(monkeypatch, told, point, Reached(50, None)) == point
    assert told.asked == [("end", ONE, -1)] * 2


@pytest.mark.parametrize(
    ("epoch_end", "lost"),
    [
        (EpochEnd(3, 60), None),
        (EpochEnd(3, 48), None),  # what came after the mark may be of later epochs
        (EpochEnd(3, 40), (40, 50)),
        (EpochEnd(2, 40), (40, 50)),
        (EpochEnd(2, 48), (47, 50)),  # at least the last one of the epoch
        (EpochEnd(3, 20), None),  # which shows when it is fetched
    ],
)
def test_a_log_whose_epoch_ends_before_what_was_copied_of_it_has_lost_that_though_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, epoch_end: EpochEnd, lost: tuple[int, int] | None
) -> None:
    told, point = Source(90, epoch_end), StartingPoint((30,), leader_epoch=3)
    found = compare(monkeypatch, told, point, Reached(50, EpochMark(48, 3)))
    assert found == point._replace(lost=lost)
    assert told.asked == [("epoch", ONE, 3)] + [("end", ONE, -1)] * (epoch_end.offset >= 48 and lost is None)


def test_a_log_that_had_others_of_an_epoch_between_is_asked_on_until_it_names_one_that_was_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of epoch 2 nothing was copied: what the log has of it lies where copied records of epoch 3 did."""
    told = Source(90, {4: EpochEnd(2, 70), 1: EpochEnd(1, 25)})
    reached = Reached(50, EpochMark(50, 4), (EpochStart(4, 40), EpochStart(1, 0), EpochStart(3, 30)))
    found = compare(monkeypatch, told, StartingPoint((20,)), reached)
    assert (found.leader_epoch, found.lost) == (1, (25, 50))
    assert told.asked == [("epoch", ONE, 4), ("epoch", ONE, 1)]


def test_a_log_that_has_all_of_an_epoch_may_have_lost_what_came_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the route was exactly once for a while: its pages know no epochs."""
    told, point = Source(45, EpochEnd(3, 40)), StartingPoint((30,), leader_epoch=3)
    assert compare(monkeypatch, told, point, Reached(50, EpochMark(40, 3))).lost == (45, 50)
    told = Source(90, EpochEnd(3, 40))
    assert compare(monkeypatch, told, point, Reached(40, EpochMark(40, 3))).lost is None
    assert told.asked == [("epoch", ONE, 3)]


@pytest.mark.parametrize("epoch_end", [None, EpochEnd(-1, -1)])
def test_a_log_that_tells_nothing_of_the_epoch_is_asked_where_it_ends(
    monkeypatch: pytest.MonkeyPatch, epoch_end: EpochEnd | None
) -> None:
    told, point = Source(40, epoch_end), StartingPoint((30,), leader_epoch=3)
    assert compare(monkeypatch, told, point, Reached(50, EpochMark(48, 3))).lost == (40, 50)
    assert told.asked == [("epoch", ONE, 3), ("end", ONE, -1), ("end", ONE, -1)]


@pytest.mark.parametrize(
    ("point", "epoch"),
    [
        (StartingPoint((50,)), 3),
        (StartingPoint((40, 60)), 3),
        (StartingPoint((50,), leader_epoch=2), 2),
        (StartingPoint((51,)), -1),
    ],
)
def test_a_position_without_an_epoch_has_that_of_what_was_copied(
    monkeypatch: pytest.MonkeyPatch, point: StartingPoint, epoch: int
) -> None:
    found = compare(monkeypatch, Source(90, EpochEnd(3, 90)), point, Reached(50, EpochMark(50, 3)))
    assert found == point._replace(leader_epoch=epoch)
