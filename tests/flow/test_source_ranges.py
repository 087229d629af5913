"""What is found out about a source that has not what was asked for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow import source_ranges
from mirrormaker.flow.exchange import Assignment
from mirrormaker.flow.machine import FlowConfig, FlowMachine
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.source_ranges import SourceRanges
from mirrormaker.flow.trouble import Trouble, TroubleKind

SOURCE = TopicPartition("flights", 0)


@pytest.mark.parametrize(
    ("asked_at", "moved_to", "found"),
    [
        (84, 84, [TroubleKind.SOURCE_GAP]),
        (84, 150, []),  # behind what had been deleted, as the first look had found
        (0, 84, []),
    ],
)
def test_a_refusal_says_nothing_of_where_the_partition_has_gone_on_since(
    monkeypatch: pytest.MonkeyPatch, asked_at: int, moved_to: int, found: list[TroubleKind]
) -> None:
    """The source tells late what it has: from 100 on, and epoch 3 as it was copied."""
    machine, told = FlowMachine(FlowConfig()), list[Trouble]()
    machine.assign(
        [Assignment(source=SOURCE, destinations=(TopicPartition("jfk.flights", 0),), bucket=0, position=84)]
    )
    partition = machine.partitions[SOURCE]

    async def refresh(_: object) -> None:
        pass

    topics = {SOURCE.topic: SimpleNamespace(topic_id=NO_TOPIC_ID)}
    cluster: Any = SimpleNamespace(name="jfk", topics=topics, refresh=refresh)

    async def list_offsets(_: object, asked: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        partition.position = moved_to
        (kind,) = asked.values()
        return {SOURCE: SimpleNamespace(offset=200 if kind == source_ranges.LATEST else 100)}

    async def tells_epochs(*_: object) -> bool:
        return True

    async def find() -> None:
        async with asyncio.TaskGroup() as tasks:
            ranges = SourceRanges(
                cluster,
                machine,
                tasks,
                SystemClock(),
                on_look=lambda _: None,
                on_trouble=told.append,
                on_progress=lambda: None,
                find_epochs=tells_epochs,  # type: ignore[arg-type]
            )
            monkeypatch.setattr(ranges, "_tells_epochs", tells_epochs)
            partition.epochs = ReadEpochs(84, 3)
            ranges.look(SOURCE, asked_at)

    monkeypatch.setattr(source_ranges, "list_offsets", list_offsets)
    asyncio.run(find())
    assert [each.kind for each in told] == found
