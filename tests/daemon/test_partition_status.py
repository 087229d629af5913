"""How partitions stand, as their source tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.group_offsets import OffsetAndMetadata
from broker.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from broker.client.offsets import EARLIEST, OffsetAndTimestamp
from broker.clock import SystemClock
from broker.types import HostPort, TopicPartition
from mirrormaker import partition_status
from mirrormaker.flow import start as flow_start
from mirrormaker.flow.lag import NO_LAG, Lag
from mirrormaker.flow.timing.first_waiting import FirstBatch
from mirrormaker.flow.timing.latency import Basis
from mirrormaker.flow.timing.risk import Retention
from mirrormaker.flow.timing.source_settings import SourceSettings
from mirrormaker.partition_status import LEADERLESS, UNASSIGNED, observe_partitions
from mirrormaker.topology.model import Isolation, Start, StartAtOffsets, StartPosition
from tests.reconcile.test_routes import work
from tests.storage.samples import ManualClock

LED, LEADERLESS_ONE = TopicPartition("flights", 0), TopicPartition("flights", 1)
METADATA = ClusterMetadata(
    nodes={1: Node(id=1, address=HostPort("127.0.0.1", 1))},
    topics={
        "flights": TopicMetadata(
            name="flights", partitions={0: PartitionMetadata(leader=1), 1: PartitionMetadata(leader=-1)}
        )
    },
)


@dataclass(frozen=True)
class Source:
    async def refresh(self) -> ClusterMetadata:
        return METADATA


@dataclass(frozen=True)
class Group:
    offset: int | None = 7
    """Its position in every partition; None: it has none."""

    async def group_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if self.offset is None:
            return {}
        return {partition: OffsetAndMetadata(offset=self.offset) for partition in partitions}


async def ends_of_led(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], **options: object
) -> dict[TopicPartition, OffsetAndTimestamp]:
    assert LEADERLESS_ONE not in wanted
    return {partition: OffsetAndTimestamp(offset=7) for partition in wanted}


def begun_at(start: int) -> Callable[..., Awaitable[dict[TopicPartition, int]]]:
    """Every partition of the source begins there."""

    async def starts(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, start)

    return starts


@pytest.mark.parametrize(
    ("told", "end", "state", "messages"),
    [
        ({}, -1, UNASSIGNED, 0),
        ({"flights-1": {"state": "copying", "source_end": 12, "acknowledged": 9}}, 12, "copying", 5),
    ],
)
def test_a_partition_without_a_leader_hides_nothing_of_the_others(
    told: Mapping[str, Any], end: int, state: str, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_status, "list_offsets", ends_of_led)
    led, leaderless = asyncio.run(
        observe_partitions(
            work("r").route,
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            {"partitions": told},
            0,
            SystemClock(),
        )
    )
    assert (led.source, led.end, led.lag, led.problem) == (LED, 7, NO_LAG, None)
    assert (leaderless.source, leaderless.committed, leaderless.end) == (LEADERLESS_ONE, 7, end)
    assert (leaderless.state, leaderless.problem) == (state, LEADERLESS)
    assert leaderless.lag == Lag(messages=messages, bytes=None, seconds=None)


def test_a_partition_that_could_not_be_begun_shows_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_status, "list_offsets", ends_of_led)
    refusal = {"state": "halted", "reason": "unauthorized", "problem": "source: TOPIC_AUTHORIZATION_FAILED"}
    led, _ = asyncio.run(
        observe_partitions(
            work("r").route,
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            {"partitions": {}, "not_begun": {str(LED): refusal}},
            0,
            SystemClock(),
        )
    )
    assert (led.state, led.reason, led.problem) == tuple(refusal.values())


@pytest.mark.parametrize("isolation", Isolation)
def test_the_end_is_that_of_the_records_that_the_route_reads(
    isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an open transaction there is nothing for those who read what is committed."""

    async def ends(
        cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {partition: OffsetAndTimestamp(offset=7 if read_committed else 99) for partition in wanted}

    async def sample(
        cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, object]:
        assert not (wanted and read_committed)
        return {}

    monkeypatch.setattr(partition_status, "list_offsets", ends)
    monkeypatch.setattr(partition_status, "sample_first", sample)
    monkeypatch.setattr(partition_status, "earliest_offsets", begun_at(0))
    led, _ = asyncio.run(
        observe_partitions(
            replace(work("r").route, isolation=isolation),
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            {},
            None,
            SystemClock(),
        )
    )
    assert led.lag.messages == (0 if isolation is Isolation.READ_COMMITTED else 92)


NOW_MS = 1_000_000
LEFT_AT_MS = 400_000
CAUGHT_UP = {"looked_ms": LEFT_AT_MS, "source_end": 7, "waiting_since_ms": None}
BEHIND = {"looked_ms": LEFT_AT_MS, "source_end": 9, "waiting_since_ms": 300_000}


@pytest.mark.parametrize(
    ("said_ms", "left", "seconds"),
    [
        (1, None, 999.999),
        (1, CAUGHT_UP, 600),
        (700_000, CAUGHT_UP, 300),
        (NOW_MS + 1, CAUGHT_UP, 0),
        (-1, CAUGHT_UP, 600),
        (1, BEHIND, 700),
        (350_000, BEHIND, 650),
        (NOW_MS + 1, BEHIND, 600),
        (1, {**BEHIND, "waiting_since_ms": None}, 999.999),
        (-1, {**BEHIND, "waiting_since_ms": None}, None),
    ],
)
def test_what_waits_of_a_route_that_rests_is_as_old_as_it_says_as_far_as_the_daemon_saw_of_it(
    monkeypatch: pytest.MonkeyPatch, said_ms: int, left: Mapping[str, Any] | None, seconds: float | None
) -> None:
    async def ends(*_: object, **__: object) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {LED: OffsetAndTimestamp(offset=12)}

    async def sample(*_: object, **__: object) -> dict[TopicPartition, FirstBatch]:
        return {LED: FirstBatch(timestamp_ms=said_ms, bytes_per_offset=10.0)}

    monkeypatch.setattr(partition_status, "list_offsets", ends)
    monkeypatch.setattr(partition_status, "sample_first", sample)
    led, _ = asyncio.run(
        observe_partitions(
            work("r").route,
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            {"partitions": {}, "left": {} if left is None else {str(LED): left}},
            NOW_MS,
            ManualClock(NOW_MS),
        )
    )
    assert led.lag == Lag(messages=5, bytes=50, seconds=seconds)


PAUSE = {"by": "somebody", "at_ms": LEFT_AT_MS}


@pytest.mark.parametrize(
    ("told", "kept_ms", "said_ms", "risk"),
    [
        ({"pause": PAUSE}, 600_000, 900_000, (500.0, False)),
        ({"pause": PAUSE}, 600_000, 600_000, (200.0, True)),
        ({"pause": PAUSE}, 600_000, 1, (0.0, True)),
        ({"paused_topics": {"flights": PAUSE}}, 600_000, 600_000, (200.0, True)),
        ({"paused_topics": {"trains": PAUSE}}, 600_000, 600_000, None),
        ({"pause": PAUSE}, None, 1, None),
        ({"pause": PAUSE}, 600_000, -1, None),
        ({}, 600_000, 1, None),
    ],
    ids=["long", "soon", "now", "topic", "other topic", "for ever", "no time", "not paused"],
)
def test_what_waits_while_a_route_pauses_is_in_danger_by_its_age(
    monkeypatch: pytest.MonkeyPatch,
    told: Mapping[str, Any],
    kept_ms: int | None,
    said_ms: int,
    risk: tuple[float, bool] | None,
) -> None:
    async def ends(*_: object, **__: object) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {LED: OffsetAndTimestamp(offset=12)}

    async def sample(*_: object, **__: object) -> dict[TopicPartition, FirstBatch]:
        return {LED: FirstBatch(timestamp_ms=said_ms, bytes_per_offset=10.0)}

    async def settings(*_: object) -> tuple[dict[str, SourceSettings], str | None]:
        return {"flights": SourceSettings(retention=Retention(ms=kept_ms), basis=Basis.CREATE)}, None

    monkeypatch.setattr(partition_status, "list_offsets", ends)
    monkeypatch.setattr(partition_status, "sample_first", sample)
    monkeypatch.setattr(partition_status, "read_source_settings", settings)
    led, _ = asyncio.run(
        observe_partitions(
            work("r").route,
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            told,
            NOW_MS,
            ManualClock(NOW_MS),
        )
    )
    expected = None
    if risk is not None:
        expected = {"seconds": risk[0], "deleted_by": "retention.ms", "in_danger": risk[1]}
    assert led.retention == expected


@pytest.mark.parametrize(
    ("begin", "problem", "lag", "seconds_left"),
    [
        (0, None, Lag(messages=5, bytes=None, seconds=None), None),
        (7, None, Lag(messages=5, bytes=None, seconds=None), None),
        (9, "its source has deleted 2 of what waits", Lag(messages=5, bytes=50, seconds=400.0), 200.0),
        (12, "its source has deleted 5 of what waits", Lag(messages=5, bytes=None, seconds=None), None),
        (99, "its source has deleted 5 of what waits", Lag(messages=5, bytes=None, seconds=None), None),
    ],
    ids=["nothing", "before the position", "a part", "all", "all, and what came since"],
)
def test_what_the_source_has_deleted_while_a_route_pauses_is_said(
    monkeypatch: pytest.MonkeyPatch, begin: int, problem: str | None, lag: Lag, seconds_left: float | None
) -> None:
    """The group stands at 7, the source ends at 12; of what is there the first is 400 s old, and kept for
    600 s.
    """

    async def ends(*_: object, **__: object) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {LED: OffsetAndTimestamp(offset=12)}

    async def sample(
        cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, FirstBatch]:
        first = FirstBatch(timestamp_ms=600_000, bytes_per_offset=10.0)
        return {partition: first for partition, offset in wanted.items() if offset == 9}

    async def settings(*_: object) -> tuple[dict[str, SourceSettings], str | None]:
        return {"flights": SourceSettings(retention=Retention(ms=600_000), basis=Basis.CREATE)}, None

    monkeypatch.setattr(partition_status, "list_offsets", ends)
    monkeypatch.setattr(partition_status, "sample_first", sample)
    monkeypatch.setattr(partition_status, "earliest_offsets", begun_at(begin))
    monkeypatch.setattr(partition_status, "read_source_settings", settings)
    led, _ = asyncio.run(
        observe_partitions(
            work("r").route,
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group()),
            {"pause": PAUSE},
            NOW_MS,
            ManualClock(NOW_MS),
        )
    )
    assert (led.problem, led.lag) == (problem, lag)
    assert (led.retention or {}).get("seconds") == seconds_left


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (Start.EARLIEST, 2),
        (Start.LATEST, 7),
        (StartAtOffsets(offsets={"flights": {0: 5}}), 5),
    ],
)
def test_a_route_without_a_position_stands_where_it_would_start(
    start: StartPosition, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two_to_seven(
        cluster: Cluster, wanted: Mapping[TopicPartition, int], **options: object
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {each: OffsetAndTimestamp(offset=2 if at == EARLIEST else 7) for each, at in wanted.items()}

    async def nothing_known(*_: object, **__: object) -> dict[TopicPartition, object]:
        return {}

    monkeypatch.setattr(partition_status, "list_offsets", two_to_seven)
    monkeypatch.setattr(flow_start, "list_offsets", two_to_seven)
    monkeypatch.setattr(partition_status, "sample_first", nothing_known)
    monkeypatch.setattr(partition_status, "earliest_offsets", begun_at(2))
    led, leaderless = asyncio.run(
        observe_partitions(
            replace(work("r").route, start=start),
            cast(Cluster, Source()),
            cast(GroupOffsetAdmin, Group(offset=None)),
            {},
            None,
            SystemClock(),
        )
    )
    assert (led.committed, led.lag.messages) == (position, 7 - position)
    assert (leaderless.committed, leaderless.lag.messages) == (-1, 0)
