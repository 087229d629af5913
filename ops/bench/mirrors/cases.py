"""What is copied, and what copying it took. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.records.batch import Codec
from ops.bench.comparison.cases import Figure

CODECS = (Codec.NONE, Codec.SNAPPY, Codec.ZSTD)
RECORD_SIZES = (100, 1_000)
PARTITION_COUNTS = (1, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorCase:
    """A topic as its producers filled it."""

    codec: Codec
    record_size: int
    partitions: int

    @property
    def title(self) -> str:
        size = "1 KB" if self.record_size == 1_000 else f"{self.record_size} B"
        return f"{self.codec.name.lower()} {size} {self.partitions}p"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """How fast a mirror copied; bytes are those of batches as they are stored at the source."""

    figure: Figure
    resident_bytes: int
    """The most that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Shares of a core that were used. Both nodes are on one core, mirror and load on the other."""

    source: float
    destination: float
    load: float
    """Who produces to the source."""
    mirror: float

    @property
    def nodes_core(self) -> float:
        """Of the core of both nodes: near 1 they could do no more."""
        return self.source + self.destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """How long records took from being sent to the source until the destination had them for readers."""

    megabytes_per_second: float
    """The rate that was asked for."""
    busy: Busy
    median_ms: float
    p99_ms: float
    stolen_ms: float
    """Of all processors together, meanwhile: the host did not run them."""
    missing: int
    """Batches that had not come when the time was up: the mirror did not keep up."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was measured of one mirror in one case."""

    copying: Copying
    delays: list[Delay] = field(default_factory=list)
    """At a quarter of its own rate; then at a quarter of the other mirror's."""


@dataclass(slots=True, kw_only=True)
class CaseOutcome:
    """Everything about a case, by the name of the mirror."""

    case: MirrorCase
    by_mirror: dict[str, Outcome] = field(default_factory=dict)
    passing_on: Figure | None = None
    """A loop that fetches and produces the same, and looks at nothing."""


def all_cases() -> Sequence[MirrorCase]:
    """The whole table."""
    return [
        MirrorCase(codec=codec, record_size=size, partitions=partitions)
        for codec in CODECS
        for size in RECORD_SIZES
        for partitions in PARTITION_COUNTS
    ]
