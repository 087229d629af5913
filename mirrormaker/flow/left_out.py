"""Which records of a source have been counted as left out: one that is taken in again, after a setback or a
rebalance, is not counted again. Pure.

It is known by its offset, whatever it ran into, and remembered beyond the life of a `Partition`: what is
given up comes back with what was not committed. What is committed comes back only where somebody seeks, so
that is forgotten first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.types import TopicPartition
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.trouble import TroubleKind

REMEMBERED_MAX = 20_000
"""Offsets of one partition."""


class LeftOutOffsets:
    """Of one machine."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, set[int]] = {}

    def count(self, partition: Partition, found: Mapping[int, TroubleKind]) -> Counter[TroubleKind]:
        """How many of what was `found`, by offset, are new, by what they ran into; they are known now."""
        known = self._known.setdefault(partition.source, set())
        new = found.keys() - known
        known |= new
        if len(known) > REMEMBERED_MAX:
            open_ones = sorted(offset for offset in known if offset >= partition.committed)
            self._known[partition.source] = set(open_ones[-REMEMBERED_MAX:])
        return Counter(found[offset] for offset in sorted(new))

    def forget(self, source: TopicPartition, start: int = 0) -> None:
        """Offsets from `start` on mean other records now."""
        self._known[source] = {offset for offset in self._known.get(source, ()) if offset < start}
