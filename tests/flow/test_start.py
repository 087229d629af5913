"""Where a new route starts while its source goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from broker.client import offsets
from broker.client.cluster import Cluster
from broker.client.offsets import NO_OFFSET, OffsetAndTimestamp
from broker.types import TopicPartition
from mirrormaker.flow import start
from mirrormaker.flow.start import start_offsets
from mirrormaker.topology.model import Start, StartAtOffsets, StartAtTime, StartPosition

FLIGHTS = TopicPartition("flights", 0)


class GrowingLog:
    """Ten records, at second 0 to 9; another comes, a second later, with every question."""

    def __init__(self) -> None:
        self.count = 10

    async def list_offsets(
        self, _: Cluster, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        found = {each: OffsetAndTimestamp(offset=self._offset_at(when)) for each, when in wanted.items()}
        self.count += 1
        return found

    def _offset_at(self, when: int) -> int:
        match when:
            case offsets.LATEST:
                return self.count
            case offsets.EARLIEST:
                return 0
            case _:
                offset = -(-when // 1000)
                return offset if offset < self.count else NO_OFFSET


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Start.EARLIEST, 0),
        (Start.LATEST, 10),
        (StartAtTime(timestamp_ms=4_500), 5),
        (StartAtTime(timestamp_ms=9_500), 10),
        (StartAtTime(timestamp_ms=60_000), 10),
        (StartAtOffsets(offsets={"flights": {0: 3}}), 3),
        (StartAtOffsets(offsets={"flights": {0: 500}}), 10),
        (StartAtOffsets(offsets={"flights": {1: 3}}), 0),
    ],
)
def test_no_record_is_passed_over_that_is_late_enough_and_comes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, position: StartPosition, expected: int
) -> None:
    monkeypatch.setattr(start, "list_offsets", GrowingLog().list_offsets)
    found = asyncio.run(start_offsets(cast("Cluster", None), position, [FLIGHTS]))
    assert found == {FLIGHTS: expected}
