"""What a comparison of two logs found: differences, and what is none. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from broker.types import TopicPartition
from mirrormaker.audit.ranges import Range


class DifferenceKind(Enum):
    """How a destination differs from its source."""

    MISSING = "missing"
    """A record of the source is not at the destination."""
    DOUBLED = "doubled"
    """A record of the source is at the destination once more."""
    REORDERED = "reordered"
    """A record is there, and not where its neighbours are."""
    ALTERED = "altered"
    """In the place of a record is another: key, value, headers or time differ."""
    UNEXPLAINED = "unexplained"
    """A record of the destination comes from nowhere."""


class Outcome(Enum):
    """What else may be found: none of these is a difference."""

    LEFT_OUT = "left_out"
    """Filters and functions of the route let it go, or it is no record, as markers."""
    NOTED = "noted"
    """It is noted at the destination as left out, or was passed over by a seek."""
    RETURNED = "returned"
    """It has been at the destination, or comes there by another route."""
    PENDING = "pending"
    """It is still to be copied."""
    REPEATED = "repeated"
    """It is there once more, as at least once may be, or a seek asked for."""
    LOST = "lost"
    """It is not there, as at most once may be."""
    OTHERS = "others"
    """A record of the destination that somebody else may write there."""
    THERE_BEFORE = "there_before"
    """A record of the destination that stands before all that the ledger knows."""
    LOST_AT_SOURCE = "lost_at_source"
    """The source lost it after it was copied: it cannot be judged."""
    GONE_AT_SOURCE = "gone_at_source"
    """The source has deleted it: what stands for it cannot be judged."""
    GONE_AT_DESTINATION = "gone_at_destination"
    """The destination has deleted it, by age, size or compaction: it cannot be judged."""
    BEFORE_START = "before_start"
    """The route began later."""
    UNRECORDED = "unrecorded"
    """The ledger does not know of it: it cannot be judged without reading."""
    BY_FUNCTION = "by_function"
    """A function of the route's own made it: what it should be cannot be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference, or several alike side by side."""

    kind: DifferenceKind
    source: TopicPartition
    source_offset: int | None
    """Of the record, or of the one before the place; None where there is none."""
    destination: TopicPartition
    destination_offset: int | None
    """Where the record is, or belongs; None where that is not known."""
    count: int = 1

    def follows(self, other: Difference) -> bool:
        """Whether it goes on where the other ends."""
        return (
            self.kind is other.kind
            and (self.source, self.destination) == (other.source, other.destination)
            and _goes_on(other.source_offset, self.source_offset, other.count, self.kind)
            and _goes_on(other.destination_offset, self.destination_offset, other.count, self.kind)
        )

    def line(self) -> str:
        """For people."""
        number = "" if self.count == 1 else f"{self.count} records "
        source = "-" if self.source_offset is None else str(self.source_offset)
        to = "-" if self.destination_offset is None else str(self.destination_offset)
        return f"{number}{self.kind.value}: {self.source} offset {source}, {self.destination} offset {to}"

    def document(self) -> dict[str, object]:
        """Plain data."""
        return {
            "kind": self.kind.value,
            "topic": self.source.topic,
            "partition": self.source.partition,
            "offset": self.source_offset,
            "to_topic": self.destination.topic,
            "to_partition": self.destination.partition,
            "to_offset": self.destination_offset,
            "count": self.count,
        }


def _goes_on(before: int | None, offset: int | None, count: int, kind: DifferenceKind) -> bool:
    if before is None or offset is None:
        return before is offset
    stays = kind is DifferenceKind.UNEXPLAINED  # these have one place at the source
    return offset in ((before, before + count) if stays else (before + count,))


DIFFERENCES_KEPT = 1_000
"""Of one partition; more are counted."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """Of one source partition, or of several together."""

    records: int = 0
    """Of the source, that were looked at."""
    equal: int = 0
    """Of those, at the destination as they should be."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    differing: Counter[DifferenceKind] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    """The first ones, in the order of the source."""

    @property
    def has_differences(self) -> bool:
        """Whether source and destination differ."""
        return bool(self.differing)

    def add(self, difference: Difference) -> None:
        """Take one in."""
        self.differing[difference.kind] += difference.count
        last = self.differences[-1] if self.differences else None
        if last is not None and difference.follows(last):
            self.differences[-1] = _longer(last, difference.count)
        elif len(self.differences) < DIFFERENCES_KEPT:
            self.differences.append(difference)

    def add_missing(
        self, source: TopicPartition, records: Range, destination: TopicPartition, at: int | None
    ) -> None:
        """Records of these source offsets are not at the destination; `at`: where the first belongs."""
        self.add(
            Difference(
                kind=DifferenceKind.MISSING,
                source=source,
                source_offset=records.first,
                destination=destination,
                destination_offset=at,
                count=records.length,
            )
        )

    def merge(self, other: Findings) -> None:
        """Take all of the other's in."""
        self.records += other.records
        self.equal += other.equal
        self.outcomes.update(other.outcomes)
        self.differing.update(other.differing)
        self.differences += other.differences[: DIFFERENCES_KEPT - len(self.differences)]

    def drop_differences(self) -> None:
        """Forget them, where they may be none."""
        self.differing.clear()
        self.differences.clear()

    def sort(self) -> None:
        """Put the differences in the order of the source."""
        self.differences.sort(key=_place)

    def document(self) -> dict[str, object]:
        """Plain data, without the differences themselves."""
        return {
            "records": self.records,
            "equal": self.equal,
            "outcomes": _counts(self.outcomes),
            "differences": _counts(self.differing),
        }


def _counts(counter: Mapping[Outcome, int] | Mapping[DifferenceKind, int]) -> dict[str, int]:
    return {
        kind.value: count for kind, count in sorted(counter.items(), key=lambda each: each[0].value) if count
    }


def _longer(difference: Difference, by: int) -> Difference:
    return Difference(
        kind=difference.kind,
        source=difference.source,
        source_offset=difference.source_offset,
        destination=difference.destination,
        destination_offset=difference.destination_offset,
        count=difference.count + by,
    )


def _place(difference: Difference) -> tuple[TopicPartition, int, int]:
    source = difference.source_offset
    to = difference.destination_offset
    return difference.source, -1 if source is None else source, -1 if to is None else to
