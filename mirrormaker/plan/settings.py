"""Which settings of a topic a route carries over. Pure.

Only what the source topic says itself is carried: where it leaves a setting to its cluster, the destination's
topic may have a value of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from mirrormaker.plan.world import ObservedTopic
from mirrormaker.topology.model import UNCARRIED_SETTINGS

COMPRESSION = "compression.type"
KEEP_COMPRESSION = "producer"
"""Batches stay as the mirror sends them: anything else makes the destination compress them again."""
CLEANUP = "cleanup.policy"
MIN_IN_SYNC = "min.insync.replicas"
_LISTS = frozenset({CLEANUP})
FENCE = ("max.message.bytes", "78")
"""What a failover sets at topics of the side that it leaves, so that they take nothing more from producers: a
marker that ends a transaction has 78 bytes, a batch of records hardly fits. It lasts for the switch alone, so
it is neither carried over nor taken for a difference.
"""


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
    if replicas is not None and least.isdigit() and int(least) > replicas:
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
    if other is None or name not in _LISTS:
        return one == other
    return _parts(one) == _parts(other)


def _parts(text: str) -> set[str]:
    return {part.strip() for part in text.split(",")} - {""}
