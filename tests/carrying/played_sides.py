"""Two clusters with a partition each that is copied between them, as what carries groups sees them: positions
of groups, ledgers of both ways, and marks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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
from mirrormaker.flow.chunk import SourceRun
from mirrormaker.ledger.group_mark import GroupMark, GroupMarkId
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.lane_ledger import LaneLedger
from mirrormaker.ledger.page import Page
from mirrormaker.ledger.return_ledger import ReturnLedger
from mirrormaker.ledger.route_ledger import RouteLedger
from mirrormaker.topology.model import GroupSync

AT = TopicPartition("orders", 0)
GROUP = "readers"


def lane_ledger(*runs: tuple[int, int, int]) -> LaneLedger:
    """Of a lane with these runs: first offset at the source, first offset at the destination, count."""
    ledger = LaneLedger()
    for first, to_first, count in runs:
        page = Page(first)
        page.add_runs([(SourceRun(first, count), to_first)])
        page.cover(first + count)
        ledger.put(page)
    return ledger


@dataclass
class PlayedCluster:
    """Positions of the group by partition."""

    name: str
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    lists_all: bool = True
    """Whether its coordinator can be asked for all positions of a group."""
    topics: Mapping[str, Any] = field(default_factory=dict)
    refusal: ErrorCode | None = None
    """What it says to positions that are to be committed."""


@dataclass
class PlayedLedger:
    """Of the way from one cluster, kept at the other."""

    source: PlayedCluster
    pages_: LaneLedger = field(default_factory=LaneLedger)
    marks: dict[GroupMarkId, GroupMark] = field(default_factory=dict)
    is_read: bool = True
    note: Callable[..., None] = lambda *_, **__: None
    written: list[GroupMark] = field(default_factory=list)

    def lane(self, source: TopicPartition, to: TopicPartition) -> LaneId:
        return LaneId(self.source.name, source.topic, None, source.partition, to.topic, to.partition)

    def pages(self, source: TopicPartition, to: TopicPartition) -> LaneLedger | None:
        return self.pages_ if len(self.pages_) else None

    @property
    def view(self) -> SimpleNamespace:
        return SimpleNamespace(mark=self.marks.get)

    async def put(self, records: Collection[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> None:
        for key, value in records:
            self.marks[GroupMarkId.of(key)] = mark = GroupMark.of(value)
            self.written.append(mark)

    def set_mark(self, mark: GroupMark) -> None:
        self.marks[GroupMarkId(GROUP, self.lane(AT, AT))] = mark


class PlayedReturn:
    """The ledger of the way back, as a route forth sees it."""

    def __init__(self, ledger: PlayedLedger) -> None:
        self._ledger = ledger

    def lane(self, source: TopicPartition, to: TopicPartition) -> LaneId:
        return self._ledger.lane(to, source)

    def pages(self, source: TopicPartition, to: TopicPartition) -> LaneLedger | None:
        return self._ledger.pages(to, source)

    def mark(self, group: str, source: TopicPartition, to: TopicPartition) -> GroupMark | None:
        return self._ledger.marks.get(GroupMarkId(group, self.lane(source, to)))


class PlayedSides:
    """Carries the group from `here` to `there`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.here, self.there = PlayedCluster("here"), PlayedCluster("there")
        self.forth, self.back = PlayedLedger(self.here), PlayedLedger(self.there)
        self.owned = {AT: AT}
        monkeypatch.setattr(module, "Admin", lambda _: self)
        monkeypatch.setattr(group_positions, "fetch_offsets", self.fetch_offsets)
        for name in ("fetch_offsets", "commit_offsets", "earliest_offsets"):
            monkeypatch.setattr(module, name, getattr(self, name))

    def carrier(self, *, with_back: bool = True, **further: Any) -> GroupCarrier:
        return GroupCarrier(
            GroupSync(),
            *cast("tuple[Any, Any]", (self.here, self.there)),
            cast(RouteLedger, self.forth),
            lambda: self.owned,
            cast(ReturnLedger, PlayedReturn(self.back)) if with_back else None,
            **further,
        )

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(group_id=GROUP, protocol_type="consumer")]

    async def describe_groups(self, groups: Collection[str]) -> dict[str, Any]:
        return {group: SimpleNamespace(state="Empty") for group in groups}

    async def fetch_offsets(
        self,
        cluster: PlayedCluster,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        **_: Any,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if partitions is None and not cluster.lists_all:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "cannot list all offsets of a group")
        wanted = cluster.positions if partitions is None else partitions
        return {
            at: OffsetAndMetadata(offset=cluster.positions[at]) for at in wanted if at in cluster.positions
        }

    async def commit_offsets(
        self,
        cluster: PlayedCluster,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        **_: Any,
    ) -> None:
        if cluster.refusal is not None:
            raise ProtocolError(cluster.refusal)
        cluster.positions |= {at: each.offset for at, each in offsets.items()}

    async def earliest_offsets(
        self, cluster: PlayedCluster, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)
