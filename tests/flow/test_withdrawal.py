"""Which of the positions that its destination has a route withdraws."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.cluster import Cluster
from broker.types import NO_TOPIC_ID, TopicPartition
from mirrormaker.flow.exchange import Assignment, FlowConfig
from mirrormaker.flow.heartbeats.beat import HEARTBEATS_TOPIC
from mirrormaker.flow.machine import FlowMachine
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.flow.withdrawal import Withdrawal
from mirrormaker.topology.shared_positions import PositionOwners
from tests.plan.worlds import route


@pytest.mark.parametrize(
    ("topic", "expected"), [("flights", [POSITIONS_TOPIC]), (HEARTBEATS_TOPIC, [])], ids=["own", "heartbeats"]
)
def test_positions_of_heartbeats_which_every_route_brings_are_not_looked_for(
    topic: str, expected: list[str]
) -> None:
    asked: list[str] = []

    async def refresh(topics: Collection[str]) -> Any:
        asked.extend(topics)
        return SimpleNamespace(partitions=lambda _: [])

    async def main() -> None:
        source, machine = TopicPartition(topic, 0), FlowMachine(FlowConfig())
        machine.assign([Assignment(source=source, destinations=(source,), bucket=0, position=0)])
        ends = [cast(Cluster, SimpleNamespace(cluster_id=name, refresh=refresh)) for name in ("jfk", "lga")]
        withdrawal = Withdrawal(route(), *ends, lambda: PositionOwners(route()))
        async with asyncio.TaskGroup() as tasks:
            withdrawal.begin(machine, tasks, lambda _: NO_TOPIC_ID)
            withdrawal.joined([source])

    asyncio.run(main())
    assert asked == expected
