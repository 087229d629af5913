"""Positions that went back along with what their source lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.client.offsets import Listed, OffsetAndTimestamp
from broker.types import TopicPartition
from mirrormaker.flow import lost_ends
from mirrormaker.flow.group_positions import StartingPoint
from mirrormaker.flow.lost_ends import with_lost_ends

ONE, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)


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
    asked: list[TopicPartition] = []

    async def list_offsets_found(_: object, wanted: Mapping[TopicPartition, int], **__: object) -> Listed:
        asked.extend(wanted)
        return Listed({each: OffsetAndTimestamp(offset=end) for each in wanted if end is not None}, {})

    monkeypatch.setattr(lost_ends, "list_offsets_found", list_offsets_found)
    points = {ONE: StartingPoint((position, position + 5)), OTHER: StartingPoint((7,))}
    source: Any = None
    found = asyncio.run(with_lost_ends(source, points, {} if reached is None else {ONE: reached}))
    assert found == {**points, ONE: points[ONE]._replace(lost=lost)}
    assert asked == ([ONE] if reached is not None and position < reached else [])
