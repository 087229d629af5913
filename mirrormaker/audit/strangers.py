"""Records of a destination that no record of their lane belongs to: how each came about, where the source has
what it is a copy of. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.audit.alignment import Item
from mirrormaker.audit.destination_index import DestinationIndex
from mirrormaker.audit.findings import DifferenceKind, Findings, Outcome
from mirrormaker.audit.lane_runs import Pass
from mirrormaker.audit.lane_terms import LaneTerms
from mirrormaker.topology.model import Delivery


class Origin(NamedTuple):
    """Where a stranger was found at the source."""

    source: TopicPartition
    offset: int
    place: int | None
    """Where the ledger has the copy of it; None: nowhere."""
    is_behind: bool = False
    """It lies behind all that the ledger knows: copies of it may not have been written down yet."""
    is_elsewhere: bool = False
    """It belongs into another partition of the topic, as that has other partitions than it had; so does
    `place`.
    """
    is_filtered: bool = False
    """The filters of the route let it go, as they are now."""

    may_be_untold: bool = False
    """Whoever copied what stands around the stranger may have left it there and not told the ledger."""

    @property
    def explains(self) -> bool:
        """Whether it tells how a copy came about."""
        return not self.is_elsewhere or self.is_behind or self.place is not None

    @property
    def is_unexpected(self) -> bool:
        """Whether there should be no copy of it, as far as is known."""
        return self.is_filtered and self.place is None


class Strangers:
    """See the module."""

    def __init__(
        self, terms: LaneTerms, findings: Findings, known: Pass | None, index: DestinationIndex
    ) -> None:
        self.items: list[Item] = []
        """Those that are to be looked for."""
        self._terms = terms
        self._findings = findings
        self._known = known
        self._index = index
        self._brought = set[Origin]()
        """Those of which a stranger has been explained, of several that have to be."""

    def name(self, found: Mapping[int, Origin]) -> None:
        """Say what the strangers are; `found`: where contents were found at the source. What a mirror
        repeated may have been compacted away there.
        """
        known = self._known
        for item in self.items:
            origin = found.get(item.content)
            if item.outcome is not None:
                self._name_prior(item.outcome, origin)
                continue
            is_explained = origin is not None and origin.explains
            if origin is not None and is_explained and self._is_repeated(origin, item):
                self._findings.outcomes[Outcome.REPEATED] += 1
            elif origin is not None and origin not in self._brought and self._is_untold(origin, item):
                self._brought.add(origin)
                self._findings.outcomes[Outcome.REPEATED] += 1
            elif not self._terms.is_exclusive and not self._is_doubled(origin, item):
                self._findings.outcomes[Outcome.OTHERS] += 1
            elif origin is None and self._terms.is_source_compacted and item.may_repeat:
                self._findings.outcomes[Outcome.GONE_AT_SOURCE] += 1
            elif origin is None or not is_explained or origin.is_unexpected:
                before = None if known is None else known.source_before(item.offset)
                unexplained = self._terms.difference(DifferenceKind.UNEXPLAINED, before, item.offset)
                self._findings.add(unexplained)
            elif self._is_of_another(origin) and origin not in self._brought:
                self._brought.add(origin)
            else:
                place = origin.offset, item.offset, origin.source
                self._findings.add(self._terms.difference(DifferenceKind.DOUBLED, *place))
        self.items = []

    def _name_prior(self, outcome: Outcome, origin: Origin | None) -> None:
        """Of what stands before all that the ledger knows: it counts so, unless another lane brought it."""
        if origin is None or origin in self._brought or not self._is_of_another(origin):
            self._findings.outcomes[outcome] += 1
        else:
            self._brought.add(origin)

    def _is_doubled(self, origin: Origin | None, there: Item) -> bool:
        """Whether the route itself wrote once more, where others may write too, what it never repeats."""
        is_known = origin is not None and origin.place is not None and not origin.is_elsewhere
        return there.is_own and is_known and self._terms.delivery is not Delivery.AT_LEAST_ONCE

    def _is_of_another(self, origin: Origin) -> bool:
        """Whether it is what a process of another lane brought here and ended before it wrote that down; at
        most once nobody copied it again, and that lane finds it beside its own.
        """
        is_unknown = origin.place is None and not origin.is_elsewhere
        return (
            self._terms.delivery is Delivery.AT_MOST_ONCE
            and is_unknown
            and origin.source != self._terms.source
        )

    def _is_untold(self, origin: Origin, there: Item) -> bool:
        """Whether a process that delivered at most once left the copy and did not tell the ledger: what that
        knows is what a seek had copied again.
        """
        is_known = origin.place is not None and not origin.is_elsewhere
        is_lossy = self._terms.may_be_lost(origin.offset)
        return is_known and is_lossy and origin.may_be_untold and not self._index.is_owned(there.offset)

    def _is_repeated(self, origin: Origin, there: Item) -> bool:
        """Whether a copy was left by a process that ended before it wrote it down: at least once, the record
        was copied again later, and that copy is known, or about to be, unless filters let it go since. One
        behind that may be of a process that stood still while another took over. Either is by the producer of
        a mirror that delivered at least once, where the format names producers, and stands where the ledger
        knows of no other record.
        """
        if self._index.is_owned(there.offset):
            return False
        if origin.place is None or origin.is_elsewhere:
            is_former = origin.is_filtered and self._known is not None
            return (origin.is_behind or origin.is_elsewhere or is_former) and there.may_repeat is True
        return there.offset < origin.place if there.may_repeat is None else there.may_repeat
