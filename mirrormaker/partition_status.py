"""How the partitions of a route stand, asked of its source: positions, ends, and what waits between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.client.cluster import Cluster
from broker.client.group_offset_admin import GroupOffsetAdmin
from broker.client.offsets import LATEST, earliest_offsets, list_offsets
from broker.clock import Clock
from broker.types import TopicPartition
from mirrormaker.flow.books import Written
from mirrormaker.flow.lag import NO_LAG, Lag
from mirrormaker.flow.standing import HALTED
from mirrormaker.flow.start import start_offsets
from mirrormaker.flow.timing.first_waiting import FirstBatch, sample_first
from mirrormaker.flow.timing.retention_watch import RETENTION_PART
from mirrormaker.flow.timing.risk import Cause
from mirrormaker.flow.timing.source_settings import read_source_settings
from mirrormaker.flow.trouble import ANOTHER_LOG
from mirrormaker.missing_rights import UNAUTHORIZED_CODES
from mirrormaker.plan.topics import select_topics
from mirrormaker.topology.model import Isolation, RouteSpec, Start
from mirrormaker.topology.naming import compile_naming

FindWritten = Callable[[Mapping[TopicPartition, str]], Awaitable[Written]]
"""What is written of partitions that the group has no position of, by the topics that they lead to."""
UNASSIGNED = "unassigned"
"""The state of a partition that no daemon here has."""
_ANOTHER_LOG = frozenset(kind.value for kind in ANOTHER_LOG)
LEADERLESS = "it has no leader at the source: how much of it waits is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition of a route."""

    source: TopicPartition
    destination: TopicPartition
    state: str
    """What the daemon does with it, or `UNASSIGNED`."""
    reason: str | None
    """Why it is halted: the name of a failure policy, or "refused"."""
    problem: str | None
    committed: int
    end: int
    """-1 where nobody knows it; so `committed`."""
    lag: Lag
    retention: Mapping[str, Any] | None = None
    """When the source will delete what is not copied, as the daemon here sees it, or while a pause keeps it
    from being copied by its age alone: `seconds`, `deleted_by`, `in_danger`; None where that is not in sight,
    or nobody here tells.
    """


@dataclass(slots=True, kw_only=True)
class _Look:
    """At one partition: what is known of it, and what was found of it so far."""

    source: TopicPartition
    destination: TopicPartition
    told: Mapping[str, Any]
    """By the daemon, of the partition."""
    left: Mapping[str, Any] | None
    """How the daemon saw it when it left it."""
    committed: int | None
    position: int = -1
    """`committed`, or where it would go on."""
    end: int = -1
    sample: FirstBatch | None = None
    """The first batch of what waits."""
    deleted: int | None = None
    """Where the source begins, which has deleted what is at the position."""
    risk: Mapping[str, Any] | None = None

    @property
    def first_lacking(self) -> int:
        """What waits begins at the group's position, but in a log whose offsets mean other records by now."""
        is_another_log = self.told.get("reason") in _ANOTHER_LOG
        return int(self.told["waits_from"]) if is_another_log and "waits_from" in self.told else self.position

    def status(self, told_at_ms: int | None, now_ms: int) -> PartitionStatus:
        """Of one that has a leader."""
        told, first_lacking = self.told, self.first_lacking
        problem = told.get("problem")
        if problem is None and self.deleted is not None:
            deleted = min(self.deleted, self.end) - first_lacking
            problem = f"its source has deleted {deleted} of what waits"
        sample, sampled_ms = self.sample, None
        if sample is not None:
            sampled_ms = _borne_out(sample.timestamp_ms, first_lacking, self.left)
        return PartitionStatus(
            source=self.source,
            destination=self.destination,
            state=told.get("state", UNASSIGNED),
            reason=told.get("reason"),
            problem=problem,
            committed=self.position,
            end=self.end,
            lag=_lag(self.end - first_lacking, told, sample, sampled_ms, told_at_ms, now_ms),
            retention=told.get("retention", self.risk) if first_lacking < self.end else None,
        )

    def leaderless_status(self) -> PartitionStatus:
        """Of one whose end cannot be asked for: as far as the daemon has seen it."""
        end = self.told.get("source_end", -1)
        seen = 0 if self.committed is None else end - self.committed
        return PartitionStatus(
            source=self.source,
            destination=self.destination,
            state=self.told.get("state", UNASSIGNED),
            reason=self.told.get("reason"),
            problem=self.told.get("problem") or LEADERLESS,
            committed=-1 if self.committed is None else self.committed,
            end=end,
            lag=Lag(messages=max(seen, 0), bytes=None, seconds=None),
        )


async def observe_partitions(
    route: RouteSpec,
    source: Cluster,
    group: GroupOffsetAdmin,
    told: Mapping[str, Any],
    told_at_ms: int | None,
    clock: Clock,
    find_written: FindWritten | None = None,
) -> tuple[PartitionStatus, ...]:
    """Of all partitions that the route takes; of those that have no leader what was known last. Where the
    route has no position, it stands where it would go on by what is written, or start. `told`: what a daemon
    tells of the route, `told_at_ms`. `find_written`: None while it is at work, and has positions at once.
    Raises BrokerError.
    """
    metadata = await source.refresh()
    destinations = select_topics(compile_naming(route.source, route.topics), metadata.topics.values())
    selected = metadata.topic_partitions(sorted(destinations))
    committed = await group.group_offsets(route.group, selected)
    left: Mapping[str, Mapping[str, Any]] = told.get("left", {})
    looks = {
        partition: _Look(
            source=partition,
            destination=TopicPartition(destinations[partition.topic], partition.partition),
            told=_told_of(partition, told),
            left=left.get(str(partition)),
            committed=committed[partition].offset if partition in committed else None,
        )
        for partition in selected
    }
    led = {partition: look for partition, look in looks.items() if metadata.leader(partition) is not None}
    await _look_at_ends(source, led, read_committed=route.isolation is Isolation.READ_COMMITTED)
    await _look_at_positions(route, source, led, find_written)
    await _look_at_what_waits(source, led, read_committed=route.isolation is Isolation.READ_COMMITTED)
    now_ms = clock.now_ms()
    await _look_at_ages(source, route, [look for look in led.values() if _rests(look, told)], now_ms)
    return tuple(
        look.status(told_at_ms, now_ms) if partition in led else look.leaderless_status()
        for partition, look in looks.items()
    )


async def _look_at_ends(
    source: Cluster, looks: Mapping[TopicPartition, _Look], *, read_committed: bool
) -> None:
    """Raises BrokerError."""
    ends = await list_offsets(source, dict.fromkeys(looks, LATEST), read_committed=read_committed)
    for partition, look in looks.items():
        look.end = ends[partition].offset


async def _look_at_positions(
    route: RouteSpec,
    source: Cluster,
    looks: Mapping[TopicPartition, _Look],
    find_written: FindWritten | None,
) -> None:
    """Raises BrokerError."""
    fresh = {partition: look.destination.topic for partition, look in looks.items() if look.committed is None}
    written = Written() if find_written is None or not fresh else await find_written(fresh)
    starts = await _starts(route, source, fresh, written)
    for partition, look in looks.items():
        look.position = starts[partition] if look.committed is None else look.committed


async def _starts(
    route: RouteSpec, source: Cluster, fresh: Collection[TopicPartition], written: Written
) -> dict[TopicPartition, int]:
    """Where those begin that the group has no position of. Raises BrokerError."""
    found = {partition: min(place.lanes) for partition, place in written.stood.items()}
    begun = set(fresh) - found.keys() - written.former.keys()
    for start, partitions in (
        (route.start, begun - written.sent_farther),
        (Start.LATEST, begun & written.sent_farther),
        (Start.EARLIEST, written.former.keys()),
    ):
        if partitions:
            found |= await start_offsets(source, start, list(partitions))
    return found


async def is_hidden(route: RouteSpec, source: Cluster, told: Mapping[str, Any]) -> bool:
    """Whether there are topics that the route takes and may not see, of those that the file names and those
    that its daemon tells of. Raises BrokerError.
    """
    names = compile_naming(route.source, route.topics).unseen(()) | told.get("obstacles", {}).keys()
    found = (await source.refresh(names)).topics if names else {}
    return any(name in found and found[name].error in UNAUTHORIZED_CODES for name in names)


async def _look_at_what_waits(
    source: Cluster, looks: Mapping[TopicPartition, _Look], *, read_committed: bool
) -> None:
    """See the first batches of what waits, and where the source begins of those partitions of which it has
    deleted what is at their position. Raises BrokerError.
    """
    wanted = {
        partition: look.first_lacking
        for partition, look in looks.items()
        if look.first_lacking < look.end and not _knows_all(look.told)
    }
    samples = await sample_first(source, wanted, read_committed=read_committed)
    unseen = wanted.keys() - samples.keys()
    starts = await earliest_offsets(source, unseen) if unseen else {}
    deleted = {partition: start for partition, start in starts.items() if start > wanted[partition]}
    samples |= await sample_first(source, deleted, read_committed=read_committed)
    for partition in wanted:
        looks[partition].sample = samples.get(partition)
        looks[partition].deleted = deleted.get(partition)


def _rests(look: _Look, told: Mapping[str, Any]) -> bool:
    """Whether nobody copies what waits of it because of a pause, nor tells when its source deletes that."""
    is_paused = told.get("pause") is not None or look.source.topic in told.get("paused_topics", {})
    return is_paused and look.committed is not None and "retention" not in look.told


async def _look_at_ages(source: Cluster, route: RouteSpec, looks: Iterable[_Look], now_ms: int) -> None:
    """See when the first batches of partitions that nobody copies are as old as their topics keep records.
    Raises BrokerError.
    """
    waiting = [(look, look.sample) for look in looks if look.sample is not None]
    if not waiting:
        return
    settings, _ = await read_source_settings(source, {look.source.topic for look, _ in waiting})
    for look, sample in waiting:
        known = settings.get(look.source.topic)
        kept_ms = None if known is None else known.retention.ms
        if kept_ms is None or sample.timestamp_ms < 0:
            continue
        left_ms = max(sample.timestamp_ms + kept_ms - now_ms, 0)
        look.risk = {
            "seconds": left_ms / 1000,
            "deleted_by": Cause.AGE.value,
            "in_danger": left_ms < min(route.objectives.retention_margin_ms, kept_ms * RETENTION_PART),
        }


def _told_of(source: TopicPartition, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the daemon tells of the partition, also where it could not be begun, or of its topic, where that
    stands as a whole.
    """
    partition: Mapping[str, Any] | None = told.get("partitions", {}).get(str(source))
    if partition is None:
        partition = told.get("not_begun", {}).get(str(source))
    reason = told.get("standing_topics", {}).get(source.topic)
    if partition is None and reason is not None:
        return {"state": HALTED, "reason": reason, "problem": told["obstacles"][source.topic]}
    return partition or {}


def _knows_all(told: Mapping[str, Any]) -> bool:
    """Whether a look at the source tells nothing new. What a halted one has copied is unlike what waits."""
    measured = told.get("bytes_per_offset") is not None and told.get("state") != HALTED
    return measured and _waiting_since(told, 0) is not None


def _waiting_since(told: Mapping[str, Any], told_at_ms: int) -> int | None:
    """When what waits came to the source, as the daemon saw it. What it saw nothing of came after it looked.
    None: unknown.
    """
    since_ms: int | None = told.get("waiting_since_ms")
    if since_ms is None and 0 <= told.get("source_end", -1) <= told.get("waits_from", told["acknowledged"]):
        return told_at_ms
    return since_ms


def _borne_out(timestamp_ms: int, committed: int, left: Mapping[str, Any] | None) -> int:
    """When the record at `committed` came to the source by its own word, as far as that agrees with what the
    daemon saw of the partition when it `left` it.
    """
    if left is None:
        return timestamp_ms
    looked_ms: int = left["looked_ms"]
    if committed >= left["source_end"]:
        return max(timestamp_ms, looked_ms)
    since_ms: int | None = left["waiting_since_ms"]
    return min(timestamp_ms if since_ms is None else max(timestamp_ms, since_ms), looked_ms)


def _lag(
    messages: int,
    told: Mapping[str, Any],
    sample: FirstBatch | None,
    sampled_ms: int | None,
    told_at_ms: int | None,
    now_ms: int,
) -> Lag:
    if messages <= 0:
        return NO_LAG
    bytes_per_offset = sample.bytes_per_offset if sample else told.get("bytes_per_offset")
    since_ms = _waiting_since(told, told_at_ms) if told and told_at_ms is not None else None
    if since_ms is None:
        since_ms = sampled_ms
    return Lag(
        messages=messages,
        bytes=None if bytes_per_offset is None else round(messages * bytes_per_offset),
        seconds=None if since_ms is None or since_ms < 0 else max(now_ms - since_ms, 0) / 1000,
    )
