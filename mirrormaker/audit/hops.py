"""Where one route leads on from where another leads to: whether what the first wrote is what the second read.

Both have the checksums of the batches there in their ledgers, the first as it wrote them, the second as it
read them, so that no record is read again. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from broker.types import TopicPartition
from mirrormaker.audit.outcome import RouteAudit
from mirrormaker.audit.page_sums import PageSum, SharedStretch, shared_stretches
from mirrormaker.topology.model import ClusterName, RouteName

SHOWN_STRETCHES = 1_000
"""Of one partition; more are counted."""


@dataclass(slots=True, kw_only=True)
class HopAudit:
    """Of one partition of a cluster in the middle."""

    cluster: ClusterName
    partition: TopicPartition
    writers: tuple[RouteName, ...]
    reader: RouteName
    records: int = 0
    """Of which both tell the checksums."""
    differing: int = 0
    """Records of stretches whose checksums differ."""
    differences: list[SharedStretch] = field(default_factory=list)
    """The first ones, in their order."""

    def line(self) -> str | None:
        """For people; None: nothing differs."""
        if not self.differences:
            return None
        first = self.differences[0]
        return (
            f"{self.cluster}: {self.partition} offsets {first.offsets}: {' and '.join(self.writers)} wrote"
            f" checksum {first.written_crc:x}, {self.reader} read {first.read_crc:x}"
        )


def compare_hops(audits: Sequence[RouteAudit]) -> list[HopAudit]:
    """All partitions that one of these routes writes and another reads, and that both tell checksums of."""
    written: defaultdict[tuple[ClusterName, TopicPartition], list[tuple[RouteName, PageSum]]]
    written = defaultdict(list)
    for audit in audits:
        for to, sums in audit.written.items():
            written[audit.destination, to] += ((audit.route, each) for each in sums)
    return [hop for audit in audits for hop in _hops_of(audit, written)]


def _hops_of(
    audit: RouteAudit,
    written: defaultdict[tuple[ClusterName, TopicPartition], list[tuple[RouteName, PageSum]]],
) -> Iterator[HopAudit]:
    for partition, read in audit.read.items():
        there = written.get((audit.source, partition))
        if there is None:
            continue
        hop = HopAudit(
            cluster=audit.source,
            partition=partition,
            writers=tuple(dict.fromkeys(route for route, _ in there)),
            reader=audit.route,
        )
        _take(hop, shared_stretches((each for _, each in there), read))
        if hop.records:
            yield hop


def _take(hop: HopAudit, stretches: Iterable[SharedStretch]) -> None:
    for each in stretches:
        hop.records += each.records
        if each.written_crc != each.read_crc:
            hop.differing += each.records
            if len(hop.differences) < SHOWN_STRETCHES:
                hop.differences.append(each)
