"""What is told of groups that cannot be carried; clusters are played."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client.group_descriptions import GroupListing
from broker.client.group_offsets import OffsetAndMetadata
from broker.errors import ErrorCode, ProtocolError
from broker.types import TopicPartition
from mirrormaker.carrying import carrier as module
from mirrormaker.carrying import group_positions
from mirrormaker.carrying.carrier import GroupCarrier
from mirrormaker.topology.model import GroupSync
from tests.client.running import until

REFUSAL = "the mirror lacks the right to Describe group 'b' at 'jfk'"


class Played:
    """Two clusters without partitions of the route, and a ledger that takes notes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *groups: str) -> None:
        self.refused: set[str] = set()
        self.looks = 0
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self._groups = groups
        monkeypatch.setattr(module, "Admin", lambda _: self)
        monkeypatch.setattr(group_positions, "fetch_offsets", self.fetch_offsets)
        monkeypatch.setattr(module, "earliest_offsets", self.earliest_offsets)
        ledger = SimpleNamespace(
            is_read=True, note=lambda what, **details: self.notes.append((what, details))
        )
        cluster = SimpleNamespace(refresh=self.refresh, name="jfk")
        self.carrier = GroupCarrier(
            GroupSync(interval_ms=1), *map(cast, [Any] * 3, [cluster, cluster, ledger]), dict
        )

    async def refresh(self, topics: object) -> None: ...

    async def list_groups(self) -> list[GroupListing]:
        self.looks += 1
        return [GroupListing(group_id=name, protocol_type="consumer") for name in self._groups]

    async def fetch_offsets(
        self, cluster: object, group: str, **_: object
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if group in self.refused:
            raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return {}

    async def earliest_offsets(self, cluster: object, partitions: object) -> dict[TopicPartition, int]:
        return {}

    async def carry(self, rounds: int) -> None:
        """Until that often more groups have been looked for, and the round before has ended."""
        wanted = self.looks + rounds + 1
        task = asyncio.create_task(self.carrier.run())
        async with asyncio.timeout(30):
            await until(lambda: self.looks >= wanted)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_group_that_cannot_be_carried_is_told_as_long_as_that_is_so_and_noted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        played = Played(monkeypatch, "a", "b", "c")
        played.refused = {"b", "c"}
        await played.carry(3)
        problem = played.carrier.describe()["problem"]
        assert problem is not None
        assert problem.startswith("group 'b': ")
        assert REFUSAL in problem
        assert problem.endswith(", and 1 more")
        noted = sorted((what, details["group"]) for what, details in played.notes)
        assert noted == [("groups_not_carried", "b"), ("groups_not_carried", "c")]
        played.refused = set()
        await played.carry(2)
        assert played.carrier.describe()["problem"] is None

    asyncio.run(play())
