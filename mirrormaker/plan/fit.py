"""What will not fit between a topic and its copy, as both are once a plan is done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from broker.client.operations import ALTER, ALTER_CONFIGS, CREATE, DESCRIBE, OPERATION_NAMES, READ, WRITE
from mirrormaker.plan.notices import Notice, NoticeKind
from mirrormaker.plan.settings import COMPRESSION, KEEP_COMPRESSION, TIMESTAMPS
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, TopicStep
from mirrormaker.plan.topics import is_too_wide
from mirrormaker.plan.world import ObservedCluster, ObservedTopic
from mirrormaker.topology.model import Compression, FailurePolicy, PartitionPolicy, RouteSpec, TopicSpec

_MESSAGE_BYTES = "max.message.bytes"
_APPEND_TIME = "LogAppendTime"
NAMES_TOLD_MAX = 3
"""Of topics that one right is missing for."""


def fit_notices(
    route: RouteSpec, source: ObservedTopic, copy: ObservedTopic, declared: TopicSpec | None
) -> Iterator[Notice]:
    """Whatever of a source topic its copy cannot take as it is; `declared`: what the file asks of that."""
    about = f"{route.name}: {source.name} -> {copy.name}"
    if route.topics.partitions is PartitionPolicy.SAME:
        yield from _partition_notices(about, route, source, copy, declared)
    wanted = min(source.replication, 3)
    if copy.replication < wanted:
        message = f"{copy.replication} replicas, the source has {source.replication}"
        yield Notice(kind=NoticeKind.REPLICATION, about=about, message=message)
    yield from size_notices(route, source, copy)
    codec = copy.setting(COMPRESSION)
    own = route.compression.value if route.compression is not Compression.PRESERVE else KEEP_COMPRESSION
    if codec is not None and codec not in (KEEP_COMPRESSION, own):
        message = f"{COMPRESSION} {codec} makes the destination compress every batch again"
        yield Notice(kind=NoticeKind.COMPRESSION, about=about, message=message)
    if copy.setting(TIMESTAMPS) == _APPEND_TIME:
        message = f"{TIMESTAMPS} {_APPEND_TIME} replaces the records' own timestamps"
        yield Notice(kind=NoticeKind.TIMESTAMPS, about=about, message=message)


def size_notices(route: RouteSpec, source: ObservedTopic, written: ObservedTopic) -> Iterator[Notice]:
    """Batches of a source topic that a topic of the destination is too small for."""
    limits = _number(source.setting(_MESSAGE_BYTES)), _number(written.setting(_MESSAGE_BYTES))
    if limits[0] is not None and limits[1] is not None and limits[0] > limits[1]:
        about = f"{route.name}: {source.name} -> {written.name}"
        message = f"takes batches of {limits[1]:,} bytes, the source of {limits[0]:,} ({_MESSAGE_BYTES})"
        yield Notice(kind=NoticeKind.MESSAGE_SIZE, about=about, message=message)


def parking_notices(
    route: RouteSpec, source: ObservedTopic, parked: ObservedTopic | None
) -> Iterator[Notice]:
    """Partitions of a source topic whose dead letters have no place in `parked`, where these go."""
    if parked is not None and 0 < parked.partitions < source.partitions:
        message = (
            f"{parked.partitions} partitions, the source topic that parks there has {source.partitions}: "
            "the others stand ('on.partition_mismatch'); "
            f"say 'partitions: {source.partitions}' of it in 'topics' of the cluster {route.destination!r}"
        )
        about = f"{route.name}: {source.name} -> {parked.name}"
        yield Notice(kind=NoticeKind.PARTITIONS, about=about, message=message)


def hidden_notices(about: str, cluster: ObservedCluster, names: Iterable[str]) -> Iterator[Notice]:
    """Topics of these that the cluster does not let see."""
    for name in names:
        known = cluster.topics.get(name)
        if known is not None and known.is_hidden:
            yield from _lacking(f"{about}: {name} at {cluster.name!r}", frozenset(), (DESCRIBE,))


def source_right_notices(route: RouteSpec, source: ObservedTopic) -> Iterator[Notice]:
    """Rights that reading the topic needs."""
    yield from _lacking(f"{route.name}: {source.name} at {route.source!r}", source.rights, (READ,))


def destination_right_notices(
    route: RouteSpec, destination: ObservedCluster, names: Sequence[str], steps: Sequence[TopicStep]
) -> Iterator[Notice]:
    """Rights that writing the topics `names`, and the steps, need."""
    for name in names:
        known = destination.topics.get(name)
        if known is not None and known.exists and not known.is_hidden:
            needed = (WRITE, *_step_rights(name, steps))
            yield from _lacking(f"{route.name}: {name} at {destination.name!r}", known.rights, needed)
    yield from hidden_notices(route.name, destination, names)
    yield from _creation_notices(f"{route.name}: cluster {destination.name!r}", destination, steps)


def declared_right_notices(cluster: ObservedCluster, steps: Sequence[TopicStep]) -> Iterator[Notice]:
    """Rights that the steps of topics need which the file says of the cluster."""
    for name in dict.fromkeys(step.name for step in steps):
        known = cluster.topics.get(name)
        if known is not None and known.exists:
            yield from _lacking(f"{cluster.name}: {name}", known.rights, _step_rights(name, steps))
    yield from _creation_notices(cluster.name, cluster, steps)


def own_right_notices(route: RouteSpec, *clusters: ObservedCluster) -> Iterator[Notice]:
    """Rights that the route needs for what it keeps itself."""
    for cluster in clusters:
        for missing in cluster.missing_rights:
            if missing.route == route.name:
                about = f"{route.name}: {missing.of} at {cluster.name!r}"
                yield from _lacking(about, frozenset(), missing.rights)


def access_notices(
    route: RouteSpec, source: ObservedCluster, destination: ObservedCluster
) -> Iterator[Notice]:
    """What stands against carrying access rules over."""
    if not route.sync.acls:
        return
    if source.is_open:
        message = "it has no authoriser, so there are no access rules to carry over ('sync.acls')"
        yield Notice(kind=NoticeKind.RIGHTS, about=f"{route.name}: cluster {source.name!r}", message=message)
    about = f"{route.name}: cluster {destination.name!r}"
    if destination.is_open:
        message = "it has no authoriser: everybody may read and write the copies ('sync.acls')"
        yield Notice(kind=NoticeKind.RIGHTS, about=about, message=message)
    elif not source.is_open:
        yield from _lacking(f"{about}, for 'sync.acls'", destination.rights, (ALTER,))


def _step_rights(name: str, steps: Sequence[TopicStep]) -> tuple[int, ...]:
    """What changing a topic that is there needs."""
    kinds = {type(step) for step in steps if step.name == name}
    return (*[ALTER_CONFIGS] * (ChangeSettings in kinds), *[ALTER] * (AddPartitions in kinds))


def _creation_notices(about: str, cluster: ObservedCluster, steps: Sequence[TopicStep]) -> Iterator[Notice]:
    created = {step.name for step in steps if isinstance(step, CreateTopic)}
    if refused := sorted(created - cluster.creatable):
        only = f", for {_some_of(refused)}" if len(refused) < len(created) else ""
        yield from _lacking(f"{about}{only}", cluster.rights, (CREATE,))


def _partition_notices(
    about: str, route: RouteSpec, source: ObservedTopic, copy: ObservedTopic, declared: TopicSpec | None
) -> Iterator[Notice]:
    if copy.partitions > source.partitions:
        skips = route.on.partition_mismatch is FailurePolicy.SKIP_AND_RECORD
        stands = is_too_wide(route, source, copy, declared) and not skips
        outcome = "it is not copied ('on.partition_mismatch')" if stands else "some stay empty"
        message = f"{copy.partitions} partitions, the source has {source.partitions}: {outcome}"
        yield Notice(kind=NoticeKind.PARTITIONS, about=about, message=message)
    elif copy.partitions < source.partitions:
        message = (
            f"{copy.partitions} partitions, the source has {source.partitions}: the others have no place"
        )
        yield Notice(kind=NoticeKind.PARTITIONS, about=about, message=message)


def _lacking(about: str, rights: frozenset[int] | None, needed: tuple[int, ...]) -> Iterator[Notice]:
    missing = [OPERATION_NAMES[code] for code in needed if rights is not None and code not in rights]
    if missing:
        message = f"the daemon's user lacks the right to {', '.join(missing)}"
        yield Notice(kind=NoticeKind.RIGHTS, about=about, message=message)


def _some_of(names: Sequence[str]) -> str:
    told = ", ".join(map(repr, names[:NAMES_TOLD_MAX]))
    return told if len(names) <= NAMES_TOLD_MAX else f"{told} and {len(names) - NAMES_TOLD_MAX} more"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
