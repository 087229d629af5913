"""What audits of routes found, as a whole. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.types import TopicPartition
from mirrormaker.audit.findings import Difference, Findings, Outcome
from mirrormaker.audit.header_check import HeaderFindings
from mirrormaker.audit.kept_copies import KeptCopies
from mirrormaker.audit.page_sums import PageSum, WindowSum
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.window_tally import ReadCount
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.model import ClusterName, RouteName


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCount:
    """What the ledger says of a partition in one span of time."""

    window: TimeWindow
    source: Range
    """Offsets at the source."""
    copied: int
    """Records of these that are at the destination."""
    uncopied: int
    """Offsets that were dealt with and have no copy: markers, filtered, noted."""
    unrecorded: int
    """Offsets that the ledger does not know of."""
    to: Range | None
    """Destination offsets of the first copy up to after the last."""
    sums: WindowSum | None
    """Sums of the checksums in the headers of the batches at the source, and at the destination, and of which
    source offsets these are: batches begin and end as they like. None: not known for just this.
    """


@dataclass(slots=True, kw_only=True)
class PartitionAudit:
    """Of one partition of a source."""

    source: TopicPartition
    window: Range
    """Source offsets that were judged."""
    findings: Findings
    has_ledger: bool = False
    problem: str | None = None
    """Why it cannot be judged, or not all of it."""
    windows: tuple[WindowCount, ...] = ()
    read_windows: tuple[ReadCount, ...] = ()
    """By reading; nothing where that was not asked for."""
    headers: HeaderFindings = field(default_factory=HeaderFindings)
    kept_copies: Sequence[KeptCopies] = ()
    """Of what the source lost after it was copied."""

    def tell_kept(self, copies: Sequence[KeptCopies]) -> None:
        """There are these, which are no difference."""
        self.kept_copies = copies
        self.findings.outcomes[Outcome.LOST_AT_SOURCE] += sum(each.count for each in copies)


@dataclass(slots=True, kw_only=True)
class RouteAudit:
    """Of one route."""

    route: RouteName
    source: ClusterName
    destination: ClusterName
    is_deep: bool
    partitions: list[PartitionAudit] = field(default_factory=list)
    problem: str | None = None
    """Why it cannot be judged."""
    bytes_read: int = 0
    written: dict[TopicPartition, list[PageSum]] = field(default_factory=dict)
    """By partition of the destination, what the ledger has added up of it."""
    read: dict[TopicPartition, list[PageSum]] = field(default_factory=dict)
    """By partition of the source, the same, where all of a partition goes to one."""

    @property
    def findings(self) -> Findings:
        """Of all partitions together."""
        together = Findings()
        for each in self.partitions:
            together.merge(each.findings)
        return together

    @property
    def first_difference(self) -> Difference | None:
        """By topic, partition and offset of the source."""
        return next(
            (each.findings.differences[0] for each in self.partitions if each.findings.differences), None
        )

    @property
    def has_differences(self) -> bool:
        """Whether source and destination differ."""
        return any(each.findings.has_differences for each in self.partitions)

    @property
    def problems(self) -> list[str]:
        """Why it, or partitions of it, cannot be judged."""
        own = [] if self.problem is None else [self.problem]
        return own + [
            f"{each.source}: {each.problem}" for each in self.partitions if each.problem is not None
        ]
