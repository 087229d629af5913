"""What of the records that have arrived readers of committed ones cannot read yet: all that lies behind the
first record of a transaction that is open, whoever writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from broker.client.cluster import Cluster
from broker.client.offsets import LATEST, list_offsets
from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range
from mirrormaker.ledger.page import NOWHERE_KNOWN, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Where a partition ends."""

    high: int
    """For all readers."""
    stable: int
    """For those of committed records."""

    @property
    def is_stable(self) -> bool:
        """Whether both can read the same."""
        return self.stable >= self.high


async def log_ends(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, LogEnd]:
    """Of all partitions of these, as far as they are there. Raises BrokerError."""
    partitions = [TopicPartition(topic, number) for topic in topics for number in cluster.partitions(topic)]
    asked = dict.fromkeys(partitions, LATEST)
    high = await list_offsets(cluster, asked)
    stable = await list_offsets(cluster, asked, read_committed=True)
    return {each: LogEnd(high=high[each].offset, stable=stable[each].offset) for each in partitions}


def unstable_ranges(pages: Iterable[Page], end: LogEnd) -> Iterator[Range]:
    """Source offsets of a lane whose copies may be behind the stable end."""
    if end.is_stable:
        return  # whatever pages say of a topic that was there before
    bound = end.high
    for page in sorted(pages, key=attrgetter("order"), reverse=True):
        if bound > end.stable or (page.to_next or 0) > end.stable:
            yield from _in_page(page, end.stable, end.high, bound)
        bound = bound if page.to_first is None else min(bound, page.to_first)


def _in_page(page: Page, stable: int, high: int, bound: int) -> Iterator[Range]:
    """What is in a page; a run that is nobody knows where is before the next one, or before `bound`."""
    for run in reversed(list(page.runs())):
        if run.to >= high:
            continue  # of a topic that was there before: pages are read before the end is asked for
        if run.to == NOWHERE_KNOWN:
            readable = run.length if bound <= stable else 0
        else:
            readable = min(max(stable - run.to, 0), run.length)
            bound = run.to
        if readable < run.length:
            yield Range(run.source + readable, run.source + run.length)
