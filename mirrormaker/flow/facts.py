"""What a copy machine reports: what happened, for the log and for `status`, and running counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from broker.errors import ErrorCode
from broker.types import TopicPartition
from mirrormaker.flow.chunk import DeepReason
from mirrormaker.flow.intake import Intake
from mirrormaker.flow.trouble import Trouble, TroubleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPaused:
    """The destination refuses records of this partition for good; it is tried again much later."""

    source: TopicPartition
    destination: TopicPartition
    error: ErrorCode
    offset: int
    """Of the source: the first record that is not at the destination."""
    said: str | None = None
    """What the destination said, where no policy is about records that it refuses with that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecovered:
    """A partition that failed or was paused copies again."""

    source: TopicPartition
    failures: int
    at_source: bool = False
    """The source gives what is asked for; it is not told what the destination takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingFailed:
    """A produce failed and is repeated. Told at the 1st, 2nd, 4th, 8th, ... failure in a row."""

    source: TopicPartition
    destination: TopicPartition
    error: ErrorCode
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLost:
    """The destination lost track of the producer id; what was unanswered may be there twice."""

    source: TopicPartition
    destination: TopicPartition
    bucket: int
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsMaybeLost:
    """Of the source offsets from `first` up to `next` at most `count` records may not have arrived, and will
    not be sent again (at most once).
    """

    source: TopicPartition
    first: int
    next: int
    count: int
    error: ErrorCode | None
    """None: the process that sent them ended."""
    destination: TopicPartition | None = None
    """Where they were on their way to; None: to all that the source leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGap:
    """Records went away before they were copied: the offsets from `lost_from` up to `resumed_at`."""

    source: TopicPartition
    lost_from: int
    resumed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTruncated:
    """The source ends before the position reached: it lost records that the destination has."""

    source: TopicPartition
    position: int
    resumed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecreated:
    """The source topic was deleted and created again; copying goes on with the new one's first record."""

    source: TopicPartition
    position: int
    resumed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFailed:
    """The source refuses to be read, or gives bytes that are no batches; it is asked again ever later."""

    source: TopicPartition
    offset: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObstacleMet:
    """A batch or record can go no way at all, and the partition rests in front of it. The arbiter tells."""

    trouble: Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Records were noted, or parked, instead of crossing."""

    source: TopicPartition
    offset: int
    """Where the first of them is, or shortly before."""
    kinds: Mapping[str, int]
    """How many, by what they ran into."""


Fact = (
    ObstacleMet
    | LeftOut
    | PartitionPaused
    | PartitionRecovered
    | SendingFailed
    | ProducerLost
    | RecordsMaybeLost
    | SourceGap
    | SourceTruncated
    | SourceFailed
    | TopicRecreated
)

EVENT_NAMES: Mapping[type[Fact], str] = {
    PartitionPaused: "partition_paused",
    PartitionRecovered: "partition_recovered",
    SendingFailed: "sending_failed",
    ProducerLost: "producer_lost",
    RecordsMaybeLost: "records_maybe_lost",
    SourceFailed: "source_failed",
    SourceGap: "source_gap_met",
    SourceTruncated: "source_truncated",
    TopicRecreated: "topic_recreated",
    LeftOut: "records_left_out",
}
"""What facts are called in logs and in `status`; those that are not here are told of as troubles."""


def details_of(fact: Fact) -> dict[str, object]:
    """What a fact says, for logs and `status`: names rather than numbers."""
    return {key: _plain(value) for key, value in asdict(fact).items()}


def _plain(value: object) -> object:
    match value:
        case ErrorCode():
            return value.name
        case (str(topic), int(number)):
            return f"{topic}-{number}"
        case _:
            return value


@dataclass(slots=True, kw_only=True)
class FlowCounts:
    """Running totals of one route since its machine was made."""

    batches: int = 0
    """Acknowledged by the destination; so are bytes and records."""
    bytes: int = 0
    records: int = 0
    requests: int = 0
    repeated_chunks: int = 0
    deep_batches: Counter[DeepReason] = field(default_factory=Counter)
    control_batches_dropped: int = 0
    aborted_batches_dropped: int = 0
    returned_batches_dropped: int = 0
    """Dropped for where they have been (`TopicOrigins`)."""
    filtered_records: int = 0
    """Dropped by filters and transforms."""
    bytes_left_at_source: int = 0
    """What nodes of the source left out for the filters: it did not cross the link."""
    left_out: Counter[TroubleKind] = field(default_factory=Counter)
    """Noted or parked instead of copied; each once, however often it is taken in."""
    offsets_lost_at_source: int = 0
    records_maybe_lost: int = 0
    """At most once: at most so many were given up without knowing whether they arrived."""
    transactions: int = 0
    """Exactly once: committed."""
    buckets_lost: int = 0
    """Exactly once: how often a bucket had to be taken over anew, or was another's."""
    troubles: Counter[TroubleKind] = field(default_factory=Counter)
    """What partitions could not go on for, each time that it was met."""
    errors: Counter[ErrorCode] = field(default_factory=Counter)

    def take_in(self, intake: Intake) -> None:
        """What an answer held was taken in; `left_out` is counted by the `Tally`."""
        if intake.deep:
            self.deep_batches.update(intake.deep)
            self.filtered_records += intake.filtered_records
        self.control_batches_dropped += intake.control_batches
        self.aborted_batches_dropped += intake.aborted_batches
        self.returned_batches_dropped += intake.returned_batches
