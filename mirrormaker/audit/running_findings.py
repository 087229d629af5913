"""What the audits of a process have found until now, by partition: of one that another process copies by now
that other tells, which judges it from the beginning. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from broker.types import TopicPartition
from mirrormaker.audit.findings import Findings, Outcome

DIFFERENCES_SHOWN = 20
"""Of one partition, and of all together."""
_STANDING = frozenset({Outcome.PENDING, Outcome.BEFORE_START, Outcome.LOST_AT_SOURCE})
"""Outcomes that an audit finds again and again: they are as they were last."""


class RunningFindings:
    """Of one route in this process."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, Findings] = {}
        self._standing: dict[TopicPartition, Counter[Outcome]] = {}

    def take(self, source: TopicPartition, findings: Findings) -> None:
        """What one more audit found in what came since the one before."""
        outcomes = Counter(findings.outcomes)
        self._standing[source] = Counter({each: outcomes.pop(each, 0) for each in _STANDING})
        known = self._found.setdefault(source, Findings())
        known.merge(replace(findings, outcomes=outcomes))
        del known.differences[DIFFERENCES_SHOWN:]

    def forget(self, source: TopicPartition) -> None:
        """It was made anew: what was found is of a log that is gone."""
        self._found.pop(source, None)
        self._standing.pop(source, None)

    def total(self, owned: Collection[TopicPartition]) -> Findings:
        """Of these partitions together."""
        total = Findings()
        for source in sorted(self._found.keys() & set(owned)):
            total.merge(self._found[source])
            total.outcomes.update(self._standing[source])
        del total.differences[DIFFERENCES_SHOWN:]
        return total
