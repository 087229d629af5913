"""What a route left out for good, as the topic for that at its destination says it. Pure.

Notes are of single records, of batches (`last_offset`), or of stretches that went away or were passed over
(`lost`); see `flow.obstacles` and `flow.skips`. What at most once may have lost is not left out: see
`flow.losses`. Nor is what a source lost after it was copied (`Truncation`): its offsets are those of other
records since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range, joined
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.losses import REASON
from mirrormaker.flow.trouble import ANOTHER_LOG
from mirrormaker.topology.model import RouteName


class Truncation(NamedTuple):
    """A note of what a source lost after it was copied."""

    lost: Range
    """Source offsets that had been copied."""
    reason: str
    problem: str
    at_ms: int


def noted_ranges(
    entries: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, list[Range]]:
    """Source offsets of the route that are noted, by partition. Records that are no notes are passed over."""
    notes = (each for each in entries if not _is_loss(*each) and not _is_of_another_log(each[1]))
    return _ranges(notes, route)


def lost_ranges(
    entries: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, list[Range]]:
    """The same of those that the route may have lost while it delivered at most once."""
    return _ranges((each for each in entries if _is_loss(*each)), route)


def truncations(
    entries: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, list[Truncation]]:
    """What the sources of the route lost, by partition, as far as it is noted which offsets."""
    found: defaultdict[TopicPartition, list[Truncation]] = defaultdict(list)
    for key, value in entries:
        if not _is_of_another_log(value):
            continue
        reason, problem, at_ms = (value.get(field) for field in ("reason", "problem", "at_ms"))
        for partition, ranges in _ranges([(key, value)], route).items():
            if isinstance(reason, str) and isinstance(problem, str) and type(at_ms) is int:
                found[partition] += [Truncation(lost, reason, problem, at_ms) for lost in ranges]
    return found


def _is_loss(key: Document, value: Document) -> bool:
    return "delivery" in key and value.get("reason") == REASON


def _is_of_another_log(value: Document) -> bool:
    return value.get("reason") in [kind.value for kind in ANOTHER_LOG]  # which may be of any kind


def _ranges(
    entries: Iterable[tuple[Document, Document]], route: RouteName
) -> Mapping[TopicPartition, list[Range]]:
    found: defaultdict[TopicPartition, list[Range]] = defaultdict(list)
    for key, value in entries:
        topic, partition, offset = key.get("topic"), key.get("partition"), key.get("offset")
        if key.get("route") != route or not isinstance(topic, str):
            continue
        if type(partition) is int and type(offset) is int:
            found[TopicPartition(topic, partition)].append(_range_of(value, offset))
    return {partition: joined(ranges) for partition, ranges in found.items()}


def _range_of(value: Document, offset: int) -> Range:
    lost, last = value.get("lost"), value.get("last_offset")
    if isinstance(lost, list) and len(lost) == 2 and all(type(at) is int for at in lost):
        return Range(*lost)
    if type(last) is int:
        return Range(offset, last + 1)
    is_stretch = "lost" in value  # of which nobody can tell how long it is
    return Range(offset, offset if is_stretch else offset + 1)
