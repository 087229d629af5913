"""What a refused position means, by what the source has now; the source is stood in for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.client.offsets import LATEST, OffsetAndTimestamp
from broker.types import TopicId, TopicPartition
from mirrormaker.flow import source_ranges
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.read_epochs import EpochStart
from mirrormaker.flow.source_ranges import SourceRanges
from mirrormaker.flow.trouble import Trouble, TroubleKind
from tests.client.running import run
from tests.storage.samples import ManualClock

SOURCE, DESTINATION = TopicPartition("flights", 0), TopicPartition("jfk.flights", 0)


class Source:
    """One topic, of which the metadata at hand may be old."""

    def __init__(self) -> None:
        self.name = "jfk"
        self.topics: dict[str, Any] = {}
        self.topic_id = TopicId(UUID(int=1))

    async def refresh(self, topics: Iterable[str]) -> None:
        self.topics = {topic: SimpleNamespace(topic_id=self.topic_id) for topic in topics}


@pytest.mark.parametrize(
    ("made_anew", "kind"), [(False, TroubleKind.SOURCE_TRUNCATED), (True, TroubleKind.TOPIC_RECREATED)]
)
def test_a_topic_that_was_made_anew_since_metadata_was_read_has_lost_no_records(
    monkeypatch: pytest.MonkeyPatch, made_anew: bool, kind: TroubleKind
) -> None:
    async def list_offsets(_: object, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        return {each: OffsetAndTimestamp(offset=50 if at == LATEST else 0) for each, at in wanted.items()}

    async def nothing_copied(_: TopicPartition) -> Iterable[EpochStart]:
        return ()

    async def main() -> None:
        source: Any = Source()
        await source.refresh({SOURCE.topic})
        machine = FlowMachine(FlowConfig())
        machine.assign([Assignment(source=SOURCE, destinations=(DESTINATION,), bucket=0, position=100)])
        async with asyncio.TaskGroup() as tasks:
            ranges = SourceRanges(
                source,
                machine,
                tasks,
                ManualClock(),
                on_look=lambda _: None,
                on_trouble=met.append,
                on_progress=lambda: None,
                find_epochs=nothing_copied,
            )
            ranges.find_recreated()
            source.topic_id = TopicId(UUID(int=2 if made_anew else 1))
            ranges.look(SOURCE)

    monkeypatch.setattr(source_ranges, "list_offsets", list_offsets)
    met: list[Trouble] = []
    run(main)
    assert [(each.kind, each.position, each.resume_at) for each in met] == [
        (kind, 100, 0 if made_anew else 50)
    ]
