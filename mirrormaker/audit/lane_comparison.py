"""Records that a lane should have beside those that it has, within one pass. Pure.

Where the ledger knows the place of a record, that is looked at. Whatever is not where it belongs, or not
known to the ledger, goes by content and order (`alignment`). In the end what stands apart is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable

from mirrormaker.audit.alignment import NO_SKIPS, WINDOW, Alignment, Item, Skips
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.findings import DifferenceKind, Findings, Outcome
from mirrormaker.audit.lane_runs import Pass, Whereabouts
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.audit.ranges import Range
from mirrormaker.audit.strangers import Strangers
from mirrormaker.audit.window_tally import WindowTally
from mirrormaker.topology.model import Delivery

PAIRS_MAX = 20_000
"""What stands apart, or is a stranger, is named at the latest when it is about so much."""

PRIOR_RECORDS_MAX = 50_000
"""Of what stands before all that the ledger knows, the last that another lane may have left there."""

GONE_MAX = 200_000
"""Of those that passes behind have once more, so many are known to be gone."""

PAIRS_KEPT = 2 * WINDOW
"""The last of what stands apart, which is named with what comes."""


class LaneComparison:
    """See the module."""

    def __init__(
        self,
        terms: LaneTerms,
        findings: Findings,
        known: Pass | None,
        index: DestinationIndex,
        tally: WindowTally | None = None,
        skips: Skips = NO_SKIPS,
    ) -> None:
        """`known`: what the ledger says, None: nothing. `tally`: by window. `skips`: see `Alignment`."""
        self.strangers = Strangers(terms, findings, known, index)
        self._terms = terms
        self._findings = findings
        self._known = known
        self._index = index
        self._expected: deque[Item] = deque()
        self._there: deque[Item] = deque()
        self._has_all = False
        """The destination has nothing more."""
        self._has_all_expected = False
        """The source has nothing more."""
        self._tally = tally
        self._destination_start = terms.destination_start
        self._equal_to = 0
        """The source offset behind the last record that was found equal."""
        self._unread = terms.written_meanwhile.length
        """So many records may stand where the destination was not read, beside those found absent there."""
        self._beside: Counter[int] = Counter()
        """Contents that no lane is known to have brought, and that another is to judge."""
        self._alignment = Alignment(self._count_equal, skips, is_sparse=known is not None)

    # ---- what comes in

    @property
    def is_in_step(self) -> bool:
        """Whether nothing waits: what comes next on either side belongs together."""
        return not self._expected and not self._there and self._alignment.is_empty

    @property
    def held(self) -> int:
        """Records that are in memory: of either side no more than `WINDOW` and what is taken at once, beside
        `PAIRS_MAX` of those that stand apart and as many strangers.
        """
        return len(self._expected) + len(self._there) + self._alignment.held + len(self.strangers.items)

    @property
    def has_many_strangers(self) -> bool:
        """Whether it is time to name them."""
        return len(self.strangers.items) >= PAIRS_MAX

    @property
    def wants_destination(self) -> bool:
        """Whether it gets no further without more of the destination."""
        if self._has_all:
            return False
        return self._alignment.wants_destination if self._known is None else bool(self._expected)

    def take_equal(self, first: int, count: int) -> None:
        """So many records from a source offset on are at the destination as they should be."""
        judged = min(max(self._terms.repeated_to - first, 0), count)
        repeated = sum(map(self._is_there_again, range(first, first + judged)))
        self._findings.outcomes[Outcome.REPEATED] += repeated
        self._findings.records += count - judged
        self._findings.equal += count - repeated
        self._equal_to = max(self._equal_to, first + count)
        self._alignment.begin()

    def take_equal_items(self, items: Collection[Item]) -> None:
        """The same, of records that are counted by window."""
        self._findings.records += sum(item.offset >= self._terms.repeated_to for item in items)
        for item in items:
            self._count_equal(item)
        self._alignment.begin()

    def take_source(self, items: Collection[Item]) -> None:
        """Records that the lane should have."""
        self._findings.records += sum(item.offset >= self._terms.repeated_to for item in items)
        if self._known is None:
            self._alignment.take_source(items)
            self._heed_alignment()
            return
        self._expected.extend(items)
        self._go_on(self._known)

    def take_destination(self, items: Iterable[Item]) -> None:
        """Records that are there."""
        if self._known is None:
            own = (item for item in items if not self._index.is_owned(item.offset))
            self._alignment.take_destination(own)
            self._heed_alignment()
            return
        self._there.extend(items)
        self._go_on(self._known)

    def heed_start(self, destination_start: int) -> None:
        """The destination has deleted what stood before that, be it meanwhile."""
        self._destination_start = max(self._destination_start, destination_start)

    def end(self) -> None:
        """There is nothing more on either side: name what stands apart."""
        self._has_all = self._has_all_expected = True
        if self._known is not None:
            self._go_on(self._known)
        self._alignment.end_destination()
        self._alignment.end_source()
        self._heed_alignment()
        self._settle(len(self._alignment.pairs))

    def end_source(self) -> None:
        """The source has nothing more."""
        self._has_all_expected = True
        if self._known is not None:
            self._go_on(self._known)
        self._alignment.end_source()
        self._heed_alignment()

    def end_destination(self) -> None:
        """The destination has nothing more."""
        self._has_all = True
        if self._known is None:
            self._alignment.end_destination()
            self._heed_alignment()
        else:
            self._go_on(self._known)

    # ---- by the ledger

    def _go_on(self, known: Pass) -> None:
        expected, there = self._expected, self._there
        while expected:
            item = expected[0]
            place = known.place_of(item.offset)
            if isinstance(place, Whereabouts):
                if self._alignment.is_source_full and not self._has_all:
                    if not there:
                        return
                    if _is_before(known, there[0], item):
                        self._stray(known, there.popleft())
                        continue
                expected.popleft()
                self._take_unplaced(item, place)
            elif not there:
                if not self._has_all:
                    return
                expected.popleft()
                self._absent(item, place)
            elif there[0].offset < place:
                self._stray(known, there.popleft())
            elif there[0].offset > place:
                expected.popleft()
                self._absent(item, place)
            else:
                self._compare(expected.popleft(), there.popleft())
        while there and self._has_all_expected:
            self._stray(known, there.popleft())

    def _compare(self, item: Item, there: Item) -> None:
        if item.content == there.content:
            self._count_equal(item)
        elif item.outcome is Outcome.BY_FUNCTION:
            self._findings.outcomes[Outcome.BY_FUNCTION] += 1
            self._tell_tally(item, there)
        elif self._is_overwritten(item, there.offset):
            self._absent(item, there.offset)
        else:
            self._alignment.take_source([item])
            self._alignment.take_destination([there])
            self._heed_alignment()

    def _is_overwritten(self, item: Item, place: int) -> bool:
        """Whether what stands where it was written is for others to judge: of several that the lane wrote
        there, as to a destination that was made anew, the last at the source stands there.
        """
        others = self._terms.kin.sources_at(place)
        return self._index.is_contested(place) and (not others or max(others) > item.offset)

    def _take_unplaced(self, item: Item, place: Whereabouts) -> None:
        if place is not Whereabouts.SOMEWHERE and self._terms.kin.have_copy_of(item.offset):
            return
        outcome = item.outcome
        # what came back: where it came from, others have an order of their own
        if outcome is not None and (outcome is Outcome.RETURNED or place is Whereabouts.NOWHERE):
            self._findings.outcomes[outcome] += 1
            return
        self._alignment.take_source([item])
        self._heed_alignment()

    def _absent(self, item: Item, place: int) -> None:
        terms = self._terms
        if terms.written_meanwhile.first <= place < terms.written_meanwhile.next:
            self._findings.outcomes[Outcome.PENDING] += 1
        elif place < max(self._destination_start, terms.compacted_to):
            self._count_gone(item.offset)
            self._tell_tally(item, None)
        else:
            self._alignment.take_source([item])
            self._heed_alignment()

    def _stray(self, known: Pass, there: Item) -> None:
        """A record that no expected one belongs to."""
        source = known.source_of(there.offset)
        if source is not None and self._index.is_contested(there.offset):
            return  # for whoever wrote there last to judge
        if source is not None and self._terms.is_elsewhere(source):
            self._findings.outcomes[Outcome.REPEATED] += 1  # while the topic had other partitions
            self._tell_tally(None, there)
        elif source is not None:
            self._findings.outcomes[Outcome.GONE_AT_SOURCE] += 1
            self._tell_tally(None, there)
        elif self._index.is_owned(there.offset):
            return  # for another to judge
        elif not self._index.is_neighbour(known, there.offset):
            self._note_beside(there)
        else:
            if self._index.is_before_all(there.offset):
                prior = Outcome.THERE_BEFORE if self._terms.is_exclusive else Outcome.OTHERS
                there = there._replace(outcome=prior)
            self._alignment.take_destination([there])
            self._heed_alignment()

    def _note_beside(self, there: Item) -> None:
        """The lane that is to judge it will find that it may be of this one."""
        terms = self._terms
        if terms.delivery is Delivery.AT_MOST_ONCE and terms.is_exclusive and len(self._beside) < PAIRS_MAX:
            self._beside[there.content] += 1

    def _count_equal(self, item: Item) -> None:
        self._equal_to = max(self._equal_to, item.offset + 1)
        is_repeated = self._is_repeated(item.offset)
        if self._is_there_again(item.offset):
            self._findings.outcomes[Outcome.REPEATED] += 1
        else:
            self._findings.equal += 1
        if self._tally is not None:
            self._tally.add(item, source=not is_repeated, destination=True)

    def _count_gone(self, offset: int) -> None:
        gone = self._terms.gone
        if self._is_repeated(offset):
            return
        self._findings.outcomes[Outcome.GONE_AT_DESTINATION] += 1
        if len(gone) < GONE_MAX and any(each.has_copy_of(offset) for each in self._terms.kin.behind):
            gone.add(offset)

    def _is_there_again(self, offset: int) -> bool:
        """Whether what is found equal is so once more. Where the copy of a pass before is gone it is not, and
        that is not told any more.
        """
        gone = self._terms.gone
        if offset in gone:
            gone.remove(offset)
            self._findings.outcomes[Outcome.GONE_AT_DESTINATION] -= 1
            return False
        return self._is_repeated(offset)

    def _is_repeated(self, offset: int) -> bool:
        """Whether a pass before has judged it."""
        is_copied = self._known is not None and self._known.has_copy_of(offset)
        is_judged = offset < self._terms.repeated_to
        return is_judged and not self._terms.kin.left(offset, is_copied=is_copied)

    def _tell_tally(self, item: Item | None, there: Item | None) -> None:
        """Of records that are not alike."""
        if self._tally is None:
            return
        if item is not None:
            self._tally.add(item, source=True)
        if there is not None:
            self._tally.add(there, destination=True)

    # ---- what stands apart

    def _heed_alignment(self) -> None:
        if len(self._alignment.pairs) > PAIRS_MAX:
            self._settle(len(self._alignment.pairs) - PAIRS_KEPT)

    def _settle(self, count: int) -> None:
        """Name so many of the first; what belongs together is not far apart."""
        pairs, self._alignment.pairs = self._alignment.pairs[:count], self._alignment.pairs[count:]
        for pair in pairs:
            self._tell_tally(_due(pair.source), pair.destination)
        lacking = [self._counted(pair.source) for pair in pairs]
        extra = [self._counted(self._prior_or_strange(pair.destination)) for pair in pairs]
        self._name_moved(lacking, extra)
        self._name_altered_by_place(lacking, extra)
        self._name_altered(lacking, extra)
        for item in lacking:
            if item is not None:
                self._name_lacking(item)
        for item in extra:
            if item is not None:
                self._name_extra(item)

    def _prior_or_strange(self, there: Item | None) -> Item | None:
        """Nothing, where what was there before may as well be what a process of another lane left."""
        if there is not None and there.outcome is Outcome.THERE_BEFORE and self._may_be_of_another(there):
            self.strangers.items.append(there)
            return None
        return there

    def _may_be_of_another(self, there: Item) -> bool:
        terms, first = self._terms, self._index.first
        is_near = first is not None and first - PRIOR_RECORDS_MAX <= there.offset < first
        return is_near and terms.is_shared and terms.delivery is Delivery.AT_MOST_ONCE

    def _counted(self, item: Item | None) -> Item | None:
        """Nothing, where it is no difference."""
        if item is None or item.outcome is None:
            return item
        self._findings.outcomes[item.outcome] += 1
        return None

    def _name_moved(self, lacking: list[Item | None], extra: list[Item | None]) -> None:
        """What lacks at one place and stands at another."""
        places: defaultdict[int, deque[int]] = defaultdict(deque)
        for index, item in enumerate(extra):
            if item is not None:
                places[item.content].append(index)
        for index, item in enumerate(lacking):
            if item is None or not places.get(item.content):
                continue
            at = places[item.content].popleft()
            there = extra[at]
            lacking[index] = extra[at] = None
            self._add(DifferenceKind.REORDERED, item.offset, there.offset if there is not None else None)

    def _name_altered_by_place(self, lacking: list[Item | None], extra: list[Item | None]) -> None:
        if self._known is None:
            return
        at_place = {item.offset: index for index, item in enumerate(extra) if item is not None}
        for index, item in enumerate(lacking):
            place = None if item is None else self._known.place_of(item.offset)
            if item is not None and isinstance(place, int) and place in at_place:
                lacking[index] = extra[at_place[place]] = None
                self._add(DifferenceKind.ALTERED, item.offset, place)

    def _name_altered(self, lacking: list[Item | None], extra: list[Item | None]) -> None:
        """Of two that stand at one place and are not alike, what makes them one record: key, or time. Not of
        one that may be lost, and of which the ledger has no place: then the other is looked for by itself.
        """
        for index, (item, there) in enumerate(zip(lacking, extra, strict=True)):
            if item is None or there is None or self._is_given_up(item):
                continue
            if item.key == there.key or item.timestamp == there.timestamp:
                lacking[index] = extra[index] = None
                self._add(DifferenceKind.ALTERED, item.offset, there.offset)

    def _is_given_up(self, item: Item) -> bool:
        """Whether it may be lost where the ledger would have it."""
        known = self._known
        return (
            known is not None
            and self._terms.may_be_lost(item.offset)
            and not isinstance(known.place_of(item.offset), int)
        )

    def _name_lacking(self, item: Item) -> None:
        place = None if self._known is None else self._known.place_of(item.offset)
        if self._unread and self._may_be_unread(item, place):
            self._unread -= 1
            self._findings.outcomes[Outcome.PENDING] += 1
        elif self._terms.may_be_lost(item.offset) and not isinstance(place, int):
            if self._beside[item.content]:
                self._beside[item.content] -= 1
                self._findings.equal += 1
            else:
                self._findings.outcomes[Outcome.LOST] += 1
        elif self._may_be_gone(item, place):
            self._count_gone(item.offset)
        else:
            self._add(DifferenceKind.MISSING, item.offset, place if isinstance(place, int) else None)

    def _may_be_unread(self, item: Item, place: int | Whereabouts | None) -> bool:
        """Whether a copy that the ledger does not know of may stand where the destination was not read."""
        if self._known is None:
            return item.offset >= self._equal_to
        around = self._known.places_around(item.offset).within(self._terms.written_meanwhile)
        return place is Whereabouts.UNRECORDED and around.length > 0

    def _may_be_gone(self, item: Item, place: int | Whereabouts | None) -> bool:
        """Whether the destination may have had a copy and deleted it. One that the ledger does not know of
        may have stood between the known ones around it, where nobody else's are.
        """
        compacted_to = self._terms.compacted_to
        if isinstance(place, int):
            return place < max(self._destination_start, compacted_to)
        if place is not Whereabouts.UNRECORDED or self._known is None:
            return compacted_to > 0 and place is not Whereabouts.NOWHERE
        around = self._known.places_around(item.offset).within(Range(0, compacted_to))
        return next(self._index.gaps(around), None) is not None

    def _name_extra(self, item: Item) -> None:
        if self._known is None and self._index.first is not None:
            return  # for the lanes to judge that are known to lead there
        if self._is_of_others(item):
            self._findings.outcomes[Outcome.OTHERS] += 1
        elif self._known is None and self._terms.is_source_compacted:
            self._findings.outcomes[Outcome.GONE_AT_SOURCE] += 1
        else:
            self.strangers.items.append(item)

    def _is_of_others(self, item: Item) -> bool:
        """Whether somebody else may have written it, as far as its producer tells: what a mirror repeats, or
        doubles, is by one of which the ledger has a note or copies.
        """
        is_mirrors = self._known is not None and (item.may_repeat is True or item.is_own)
        return not self._terms.is_exclusive and not is_mirrors

    def _add(self, kind: DifferenceKind, offset: int, to: int | None) -> None:
        self._findings.add(self._terms.difference(kind, offset, to))


def _is_before(known: Pass, there: Item, item: Item) -> bool:
    """Whether what is there is a copy of no record from this one on, as far as is known."""
    source = known.source_of(there.offset)
    return source is None or source < item.offset


def _due(item: Item | None) -> Item | None:
    """Nothing, where a record may be left out."""
    return item if item is not None and item.outcome is None else None
