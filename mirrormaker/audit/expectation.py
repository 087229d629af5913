"""What a route should make of the records of a source partition, for one of its lanes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.records.reader import Columns
from broker.records.record import Record
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.entries import Entry, columns_of, items_of
from mirrormaker.audit.findings import Outcome
from mirrormaker.audit.lane_runs import Pass, Whereabouts
from mirrormaker.audit.ranges import Range, holds, is_any_held
from mirrormaker.flow.obstacles import Aside
from mirrormaker.flow.transit import PartitionSteps
from mirrormaker.steps.record import RecordError


class LanePlaces:
    """In which lane the ledger has records. Which of several to a topic takes one follows from how many
    partitions the topic has; it may have had fewer then.
    """

    def __init__(self, targets: Iterable[range], passes: Mapping[int, Sequence[Pass]]) -> None:
        """`targets`: lanes by topic. `passes`: by lane."""
        self._among: Mapping[int, range] = {lane: lanes for lanes in targets for lane in lanes}
        """Without that of dead letters, where steps send nothing to their topic."""
        self._passes = passes

    def lane_of(self, lane: int, offset: int) -> int:
        """Of a source record that `lane` should take now."""
        candidates: list[int] = [lane, *self.lanes_beside(lane)]
        return next((each for each in candidates if self._has(each, offset)), lane)

    def is_elsewhere(self, lane: int, offset: int) -> bool:
        """Whether another lane to the same topic has the source record too."""
        return any(self._has(each, offset) for each in self.lanes_beside(lane) if each != lane)

    def lanes_beside(self, lane: int) -> range:
        """All lanes to the topic of this one."""
        return self._among.get(lane, range(lane, lane + 1))

    def passes_beside(self, lane: int) -> list[Pass]:
        """What is known of them."""
        return [known for each in self.lanes_beside(lane) for known in self._passes.get(each, ())]

    def _has(self, lane: int, offset: int) -> bool:
        return any(known.run_at(offset) is not None for known in self._passes.get(lane, ()))


@dataclass(slots=True, kw_only=True)
class Expectation:
    """See the module."""

    lane: int = 0
    is_wide: bool = False
    """Records of all lanes to the topic are meant, not those of this one alone."""
    steps: PartitionSteps | None = None
    """None: records go as they are."""
    unfiltered: PartitionSteps | None = None
    """The same without filters, for what was copied before the file had one that lets it go; None: there are
    none.
    """
    tells_filtered: bool = False
    """What filters let go is told as well, as `left_out`: it may have been copied before."""
    has_function: bool = False
    """One of the steps is a function of the route's own."""
    letters: Aside | None = None
    """Makes the dead letters; None: the route has none."""
    letters_of: str | None = None
    """The route whose dead letters there may be, at the destination too."""
    notes: Sequence[Range] = ()
    """Source offsets that are noted as left out, in their order, as far as the route has come."""
    returned: Sequence[Range] = ()
    """Source offsets of what came from the destination, in their order: where no lane has copied it, nothing
    there is compared with it.
    """
    carried_ids: Collection[int] = frozenset()
    """Producer ids of mirrors that write to the source: what comes with them may have been returned."""
    copied_to: int | None = None
    """Source offset that the route has come to; None: not known."""
    with_time: bool = True
    with_sums: bool = False
    """Records have checksums."""
    known: Pass | None = None
    """What the ledger knows of the lane here: a record that it has a copy of was not left out, whatever else
    is said of it.
    """
    copied: Sequence[Pass] = ()
    """What the ledger knows of all lanes of the partition."""
    parked: Sequence[Pass] = ()
    """Of these, what it knows of the lane of dead letters."""
    places: LanePlaces | None = None
    """Where records are that may be in one lane or another; None: there is one lane."""
    told_to: int = 0
    """Source offsets of which a pass before has told what is not expected."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    """Of records that are not expected at all."""
    meets_errors: bool = False
    """There were records that no step can process."""

    def is_plain(self, entry: Entry) -> bool:
        """Whether all of a batch is expected as it is."""
        header = entry.header
        return (
            self.steps is None
            and header is not None
            and (self.copied_to is None or entry.next <= self.copied_to)
            and header.producer_id not in self.carried_ids
            and not is_any_held(self.returned, Range(header.base_offset, entry.next))
            and not is_any_held(self.notes, Range(header.base_offset, entry.next))
        )

    def items(self, entry: Entry, within: Range) -> list[Item]:
        """The records of a batch that the lane should have, of these source offsets. Raises
        CorruptRecordsError.
        """
        columns, filtered = columns_of(entry), set[int]()
        if self.steps is not None:
            columns = self._stepped(columns, self.steps, within, filtered)
        items = items_of(columns, with_time=self.with_time, with_sums=self.with_sums, letters=self.letters_of)
        if columns.offsets and (columns.offsets[0] < within.first or columns.offsets[-1] >= within.next):
            items = [item for item in items if within.first <= item.offset < within.next]
        if self.is_plain(entry):
            return items
        returned = {item.offset for item in items if self._is_returned(item.offset)}
        for offset in returned:
            self._tell(Outcome.RETURNED, offset)
        is_carried = entry.header is not None and entry.header.producer_id in self.carried_ids
        return [
            item._replace(
                outcome=Outcome.LEFT_OUT
                if item.offset in filtered
                else self._outcome(item.offset, is_carried)
            )
            for item in items
            if item.offset not in returned
        ]

    def _tell(self, outcome: Outcome, offset: int) -> None:
        self.outcomes[outcome] += self.lane == 0 and offset >= self.told_to

    def _is_returned(self, offset: int) -> bool:
        """Whether it came from the destination, and was not copied there once more."""
        return holds(self.returned, offset) and not self._is_any_copied(offset)

    def _is_any_copied(self, offset: int) -> bool:
        return _have_copy(self.copied, offset)

    def _outcome(self, offset: int, is_carried: bool) -> Outcome | None:
        """What it counts as where it is not at the destination."""
        if not self._is_copied(offset):
            said = self._said_of(offset)
            if said is not None:
                return said
            if is_carried:
                return Outcome.RETURNED
        return Outcome.BY_FUNCTION if self.has_function else None

    def _said_of(self, offset: int) -> Outcome | None:
        """What notes and the route's position say of a record that is no copy."""
        if holds(self.notes, offset):
            return Outcome.NOTED
        if self.copied_to is not None and offset >= self.copied_to:
            return Outcome.PENDING
        return None

    def _is_copied(self, offset: int) -> bool:
        known = Whereabouts.UNRECORDED if self.known is None else self.known.place_of(offset)
        return isinstance(known, int) or known is Whereabouts.SOMEWHERE

    def _is_meant(self, lane: int, offset: int) -> bool:
        """Whether a record is that the steps send to `lane`."""
        if self.places is None:
            return lane == self.lane
        if self.is_wide:
            return lane in self.places.lanes_beside(self.lane)
        return self.places.lane_of(lane, offset) == self.lane

    def _stepped(self, columns: Columns, steps: PartitionSteps, within: Range, filtered: set[int]) -> Columns:
        """`filtered`: takes the offsets of records that are told though filters let them go."""
        made: list[Record] = []
        for key, value, offset, timestamp, headers in zip(*columns, strict=True):
            if not within.first <= offset < within.next:
                continue
            record = Record(offset, timestamp, 0, key, value, headers)
            try:
                sent = self._or_letter(record, steps.apply(record) or self._sent_before(record, filtered))
            except RecordError as error:
                self.meets_errors = True
                if self.letters is None:
                    self._tell(self._said_of(offset) or Outcome.NOTED, offset)
                    continue
                if self._is_any_copied(offset) and not _have_copy(self.parked, offset):
                    continue  # before the file had the steps that it has now
                sent = [self.letters.record_error(record, str(error))]
            if not sent and not self._is_any_copied(offset):
                self._tell(Outcome.LEFT_OUT, offset)
            made += [record for lane, record in sent if self._is_meant(lane, offset)]
        return _columns_of(made)

    def _or_letter(self, record: Record, sent: Sequence[tuple[int, Record]]) -> Sequence[tuple[int, Record]]:
        """The same; of a record that steps of before could not process its letter, and what is made of it now
        where it was copied since.
        """
        letters, offset = self.letters, record.offset
        if letters is None or not _have_copy(self.parked, offset):
            return sent
        if any(lane == letters.parked_lane for lane, _ in sent):
            return sent  # a step sends it there
        copied = [each for each in self.copied if each not in self.parked]
        return [*(sent if _have_copy(copied, offset) else ()), letters.record_error(record, "")]

    def _sent_before(self, record: Record, filtered: set[int]) -> Sequence[tuple[int, Record]]:
        """What was made of a record that filters let go now, where it has been copied, or is told anyway."""
        if self.unfiltered is None or not (self._is_copied(record.offset) or self.tells_filtered):
            return ()
        if self.tells_filtered:
            filtered.add(record.offset)
        return self.unfiltered.apply(record)


def _have_copy(passes: Iterable[Pass], offset: int) -> bool:
    return any(each.has_copy_of(offset) for each in passes)


def _columns_of(records: Sequence[Record]) -> Columns:
    return Columns(
        [each.key for each in records],
        [each.value for each in records],
        [each.offset for each in records],
        [each.timestamp for each in records],
        [each.headers for each in records],
    )
