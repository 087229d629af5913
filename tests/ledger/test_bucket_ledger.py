"""Pages of a ledger that are written in the transactions of a bucket."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.types import TopicPartition
from mirrormaker.flow.books import BooksStanding, ReadSoFar
from mirrormaker.flow.copied import Copied
from mirrormaker.flow.kept_view import Entry
from mirrormaker.flow.read_epochs import ReadEpochs
from mirrormaker.flow.returned import Returned
from mirrormaker.ledger.bucket_ledger import LEDGER_AT, BucketLedger
from mirrormaker.ledger.lane_id import LaneId
from mirrormaker.ledger.recorder import LedgerRecorder

SOURCE, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)


@dataclass
class Whole:
    """The ledger of a route with two partitions, each in a bucket of its own."""

    recorder: LedgerRecorder = field(default_factory=lambda: LedgerRecorder("test"))
    upkeep: dict[TopicPartition, tuple[Entry, ...]] = field(default_factory=dict)
    standing: BooksStanding = BooksStanding.KEPT
    writes: int = 0
    kept_up: int = 0

    def __post_init__(self) -> None:
        for source in SOURCE, OTHER:
            lane = LaneId("a", "flights", None, source.partition, "copy", source.partition)
            self.recorder.begin(lane, 0, ReadSoFar(ReadEpochs(0, -1), Returned()))

    def refuse(self) -> None:
        self.standing = BooksStanding.REFUSED

    def tell_written(self) -> None:
        self.writes += 1

    def tell_kept_up(self, records: int) -> None:
        self.kept_up += records

    def copy(self, source: TopicPartition, first: int, to: int) -> None:
        self.recorder.take(
            Copied(
                source=source,
                first=first,
                next=first + 1,
                destination=TopicPartition("copy", source.partition),
                base_offset=to,
                count=1,
                crc=1,
                source_crc=1,
                max_timestamp=0,
                append_time_ms=None,
                origin=0,
            )
        )


def pages(entries: tuple[Entry, ...]) -> list[object]:
    return [None if value is None else value["from"] for _, value in entries]


def test_pages_of_the_bucket_are_due_until_they_are_settled_and_no_others() -> None:
    whole = Whole()
    bucket = BucketLedger(whole)
    assert bucket.at == LEDGER_AT
    whole.copy(SOURCE, 0, 0)
    whole.copy(OTHER, 0, 0)
    assert pages(bucket.due({SOURCE: (4,)})) == [[0, 4]]
    assert pages(bucket.due({SOURCE: (4,)})) == [[0, 4]]
    bucket.settled()
    assert bucket.due({SOURCE: (4,)}) == ()
    assert (bucket.is_due([SOURCE]), bucket.is_due([OTHER])) == (False, True)
    assert pages(BucketLedger(whole).due({OTHER: (1,)})) == [[0, 1]]


def test_upkeep_goes_along_and_is_forgotten_once_it_is_committed() -> None:
    whole = Whole()
    bucket = BucketLedger(whole)
    whole.upkeep = {SOURCE: (({"at": 7}, None),), OTHER: (({"at": 9}, None),)}
    assert pages(bucket.due({SOURCE: (2,)})) == [[0, 2], None]
    assert whole.kept_up == 0
    bucket.settled()
    assert whole.kept_up == 1
    assert whole.upkeep.keys() == {OTHER}


def test_it_is_written_when_something_of_it_is_committed() -> None:
    whole = Whole()
    bucket = BucketLedger(whole)
    bucket.due({SOURCE: (0,)})
    bucket.settled()
    assert whole.writes == 0, "nothing was due"
    bucket.due({SOURCE: (2,)})
    assert whole.writes == 0
    bucket.settled()
    assert whole.writes == 1


def test_a_refusal_is_the_whole_ledgers() -> None:
    whole = Whole()
    bucket = BucketLedger(whole)
    assert bucket.standing is BooksStanding.KEPT
    bucket.refused()
    assert BucketLedger(whole).standing is BooksStanding.REFUSED
