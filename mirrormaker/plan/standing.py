"""Where a route stands in its source: what it has still to copy, what that costs a day, and whether the
source may delete records before they are copied. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from broker.types import TopicPartition
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.world import DAY_MS, ObservedTopic, PartitionTraffic
from mirrormaker.sizes import format_bytes
from mirrormaker.topology.model import (
    ClusterName,
    Compression,
    RouteName,
    RouteSpec,
    Start,
    StartAtOffsets,
    StartAtTime,
    StartPosition,
)

RETENTION_PART = 0.5
"""Of the retention: a lag that is longer is told."""
Positions = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEstimate:
    """What a route is about. Bytes are as stored at the source; None where it does not tell."""

    route: RouteName
    source: ClusterName
    destination: ClusterName
    topics: int
    partitions: int
    bytes_per_day: float | None
    """What the last 24 hours brought."""
    bytes_behind: float | None
    """Still to be copied."""
    groups: tuple[str, ...] = ()
    """Consumer groups that it carries over."""


def estimate_route(
    route: RouteSpec,
    topics: Iterable[ObservedTopic],
    positions: Positions,
    groups: tuple[str, ...] = (),
    starts: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> RouteEstimate:
    """The estimate for the topics that the route copies. `starts`: see `ObservedCluster`."""
    listed = list(topics)
    traffic = [
        (
            partition,
            _position(
                route.start,
                TopicPartition(topic.name, number),
                partition,
                positions.get(topic.name, {}).get(number),
                starts,
            ),
        )
        for topic in listed
        for number, partition in topic.traffic.items()
    ]
    return RouteEstimate(
        route=route.name,
        source=route.source,
        destination=route.destination,
        topics=len(listed),
        partitions=sum(topic.partitions for topic in listed),
        bytes_per_day=_sum(
            _bytes_a_day(topic, partition) for topic in listed for partition in topic.traffic.values()
        ),
        bytes_behind=_sum(_bytes_from(partition, position) for partition, position in traffic),
        groups=groups,
    )


def standing_notices(
    route: RouteSpec, topic: ObservedTopic, positions: Mapping[int, int]
) -> Iterator[Notice]:
    """What the source has deleted, or may soon delete, before the route has copied it."""
    about = f"{route.name}: {topic.name}"
    kept = [(topic.traffic[number], at) for number, at in positions.items() if number in topic.traffic]
    lost = sum(max(partition.start - at, 0) for partition, at in kept)
    if lost:
        message = f"{lost:,} offsets are no longer at the source, and were not copied"
        yield Notice(kind=NoticeKind.LOST, about=about, message=message)
    if not _deletes(topic):
        return
    retention_ms = _number(topic.setting("retention.ms"))
    lag_ms = max((_lag_ms(partition, at) for partition, at in kept), default=0.0)
    if retention_ms is not None and lag_ms > RETENTION_PART * retention_ms:
        message = f"{_hours(lag_ms)} behind, and the source keeps records for {_hours(retention_ms)}"
        yield Notice(kind=NoticeKind.RETENTION, about=about, message=message)
    retention_bytes = _number(topic.setting("retention.bytes"))
    behind = max((_bytes_from(partition, at) or 0.0 for partition, at in kept), default=0.0)
    if retention_bytes is not None and behind > RETENTION_PART * retention_bytes:
        message = f"{behind:,.0f} bytes behind, and the source keeps {retention_bytes:,} of a partition"
        yield Notice(kind=NoticeKind.RETENTION, about=about, message=message)


def moved_notices(route: RouteSpec, topic: ObservedTopic, before: str, name: str) -> Iterator[Notice]:
    """That copies went to `before`, and go to `name` of the destination now."""
    where = f"{before!r}" if before != name else f"{before!r} of another cluster"
    message = (
        f"was copied to {where} so far, and goes on where it was: {name!r} lacks what came before; "
        "`mirrormaker seek` takes the route back"
    )
    yield Notice(kind=NoticeKind.MOVED, about=f"{route.name}: {topic.name}", message=message)


def gone_notices(
    route: RouteSpec, topic: ObservedTopic, name: str, positions: Mapping[int, int]
) -> Iterator[Notice]:
    """That `name`, which the destination does not have, lacks what was copied before."""
    kept = ((topic.traffic[number], at) for number, at in positions.items() if number in topic.traffic)
    lacking = sum(max(min(at, partition.end) - partition.start, 0) for partition, at in kept)
    if lacking:
        message = (
            f"the copy {name!r} is gone, and the route goes on where it was: up to {lacking:,} offsets will"
            " be missing there; `mirrormaker seek` takes the route back"
        )
        yield Notice(kind=NoticeKind.GONE, about=f"{route.name}: {topic.name}", message=message)


def lag_notices(
    route: RouteSpec,
    topic: ObservedTopic,
    positions: Mapping[int, int],
    punctual: Mapping[TopicPartition, int],
) -> Iterator[Notice]:
    """What waits for longer than the route promises. `punctual`: where what is younger begins, -1: nothing
    is.
    """
    late = 0
    for number, traffic in topic.traffic.items():
        young = punctual.get(TopicPartition(topic.name, number))
        if young is not None and number in positions:
            late += max((traffic.end if young < 0 else young) - max(positions[number], traffic.start), 0)
    if late:
        promised = f"'objectives.lag_seconds' is {route.objectives.lag_seconds}"
        message = f"{late:,} offsets wait for longer than they should: {promised}"
        yield Notice(kind=NoticeKind.LAG, about=f"{route.name}: {topic.name}", message=message)


def budget_notices(route: RouteSpec, estimate: RouteEstimate) -> Iterator[Notice]:
    """Whether the source gets more than the route may spend on old records. Nothing where steps or another
    codec make something else of that.
    """
    budget, day = route.resources.catch_up_bytes_per_second, estimate.bytes_per_day
    changes = route.filters or route.transforms or route.compression is not Compression.PRESERVE
    if budget is None or day is None or changes or day * 1000 / DAY_MS < budget:
        return
    message = (
        f"{format_bytes(day * 1000 / DAY_MS)} a second come to the source, and 'catch_up_bytes_per_second' is"
        f" {format_bytes(budget)}: what falls behind stays behind"
    )
    yield Notice(kind=NoticeKind.CATCH_UP, about=route.name, message=message)


def _position(
    start: StartPosition,
    source: TopicPartition,
    traffic: PartitionTraffic,
    committed: int | None,
    starts: Mapping[TopicPartition, int],
) -> int:
    """Where a route goes on, or starts."""
    if committed is not None:
        return committed
    match start:
        case Start.LATEST:
            return traffic.end
        case StartAtTime():
            found = starts.get(source, traffic.start)
            return traffic.end if found < 0 else found
        case StartAtOffsets(offsets=offsets):
            return offsets.get(source.topic, {}).get(source.partition, traffic.start)
    return traffic.start


def _bytes_from(partition: PartitionTraffic, position: int) -> float | None:
    kept = partition.end - partition.start
    if partition.bytes is None:
        return None
    return partition.bytes * min(max(partition.end - position, 0), kept) / kept if kept else 0.0


def _deletes(topic: ObservedTopic) -> bool:
    """Whether its source deletes records."""
    return "delete" in (topic.setting("cleanup.policy") or "delete")


def _bytes_a_day(topic: ObservedTopic, partition: PartitionTraffic) -> float | None:
    """What the last day brought: where less than that is kept, what is there, as often as it was replaced."""
    kept_ms, there = _number(topic.setting("retention.ms")), partition.day_bytes
    if there is None or kept_ms is None or not partition.start or not _deletes(topic):
        return there
    return there * DAY_MS / min(max(partition.day_ms, kept_ms, 1), DAY_MS)


def _lag_ms(partition: PartitionTraffic, position: int) -> float:
    """How long the partition took to get what is still to be copied, at the rate of its last day; where that
    day brought nothing, what lags is older than the day. Nothing where that is not known.
    """
    behind = partition.end - max(position, partition.start)
    if behind <= 0 or partition.day_start is None:
        return 0.0
    day = partition.end - partition.day_start
    return partition.day_ms * behind / day if day else float(DAY_MS)


def _hours(span_ms: float) -> str:
    return f"{span_ms / 3_600_000:,.1f} h"


def _number(text: str | None) -> int | None:
    """None for no limit, too."""
    return int(text) if text is not None and text.isdecimal() else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
