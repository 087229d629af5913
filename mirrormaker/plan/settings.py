"""Which settings of a topic a route carries over. Pure.

Only what the source topic says itself is carried: where it leaves a setting to its cluster, the destination's
topic may have a value of its own. Where several routes could set a topic's settings against each other, each
follows a rule (`extent_of`) by which they come to an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum

from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import UNCARRIED_SETTINGS, RouteSpec
from mirrormaker.topology.ways import Ways

COMPRESSION = "compression.type"
KEEP_COMPRESSION = "producer"
"""Batches stay as the mirror sends them: anything else makes the destination compress them again."""
TIMESTAMPS = "message.timestamp.type"
KEEP_TIMESTAMPS = "CreateTime"
"""Records keep the times that they have; a cluster may have another default."""
CREATED_SETTINGS = {COMPRESSION: KEEP_COMPRESSION, TIMESTAMPS: KEEP_TIMESTAMPS}
"""Of topics that copies go to, said when they are created."""
CLEANUP = "cleanup.policy"
MIN_IN_SYNC = "min.insync.replicas"
_LISTS = frozenset({CLEANUP})
ORDERED = {
    "retention.ms": "records are deleted sooner",
    "retention.bytes": "records are deleted sooner",
    "local.retention.ms": "records are deleted sooner",
    "local.retention.bytes": "records are deleted sooner",
    "delete.retention.ms": "deletions are forgotten sooner",
    "max.message.bytes": "batches that it took are refused",
    MIN_IN_SYNC: "records are acknowledged with fewer replicas",
}
"""Settings whose smaller values take something away, and what; -1 is the largest."""
FENCE = ("max.message.bytes", "78")
"""What a failover sets at topics of the side that it leaves, so that they take nothing more from producers: a
marker that ends a transaction has 78 bytes, a batch of records hardly fits. It lasts for the switch alone, so
it is neither carried over nor taken for a difference.
"""


class Extent(Enum):
    """What a route does about settings that differ at the destination. A topic that it makes has them all."""

    ALL = "all"
    LARGER = "larger"
    """Those in `ORDERED` become larger, never smaller; others stay."""
    NONE = "none"


def extent_of(route: RouteSpec, topic: str, name: str, ways: Ways) -> Extent:
    """That of the copy `name` of `topic`: nobody takes back what other routes into the same topic need, and
    of clusters that bring it to each other one decides (`topology/ways`).
    """
    if route.topics.merge:
        return Extent.LARGER
    if topic == name and not ways.decides(topic, route.source, route.destination):
        return Extent.NONE
    return Extent.ALL


def applied_settings(
    carried: Mapping[str, str], known: ObservedTopic | None, extent: Extent
) -> Mapping[str, str]:
    """What of the carried settings is to hold for a topic, as it is known."""
    match extent:
        case Extent.ALL:
            return carried
        case Extent.NONE:
            return {}
        case Extent.LARGER:
            return {name: value for name, value in carried.items() if _is_larger(name, value, known)}


def carried_settings(
    source: ObservedTopic, patterns: Iterable[str], *, replicas: int | None = None
) -> dict[str, str]:
    """Settings that the source topic has of its own and that the patterns take, by name. `replicas` of the
    copy, where they are known: with fewer than `min.insync.replicas` nobody could write to it.
    """
    compiled = [re.compile(pattern) for pattern in patterns]
    carried = {
        name: setting.value
        for name, setting in sorted(source.config.items())
        if setting.own and setting.value is not None and name not in UNCARRIED_SETTINGS
        if (name, setting.value) != FENCE
        if any(pattern.fullmatch(name) for pattern in compiled)
    }
    least = carried.get(MIN_IN_SYNC, "")
    if replicas is not None and least.isdecimal() and int(least) > replicas:
        carried[MIN_IN_SYNC] = str(replicas)
    return carried


def differing_settings(wanted: Mapping[str, str], topic: ObservedTopic) -> dict[str, str]:
    """Those of `wanted` that do not hold for `topic`; none while its settings are not known."""
    if not topic.config:
        return {}
    return {
        name: value
        for name, value in sorted(wanted.items())
        if not is_same(name, value, topic.setting(name)) and (name, topic.setting(name)) != FENCE
    }


def is_same(name: str, one: str, other: str | None) -> bool:
    """Whether two values of a setting mean the same."""
    if one == other or other is None:
        return one == other
    if name in _LISTS:
        return _parts(one) == _parts(other)
    number = _decimal(one)
    return number is not None and number == _decimal(other)


def _decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _parts(text: str) -> set[str]:
    return {part.strip() for part in text.split(",")} - {""}


def shrinks(new: str, old: str | None) -> bool:
    """Whether an ordered setting becomes smaller, or where that cannot be told."""
    try:
        return old is None or _size(new) < _size(old)
    except ValueError:
        return True


def _is_larger(name: str, value: str, known: ObservedTopic | None) -> bool:
    old = None if known is None else known.setting(name)
    return name in ORDERED and value != old and not shrinks(value, old)


def _size(value: str) -> float:
    number = int(value)
    return number if number >= 0 else float("inf")
