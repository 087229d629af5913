"""What the audits of a process tell, as partitions come and go."""

from __future__ import annotations

from collections import Counter

from broker.types import TopicPartition
from mirrormaker.audit.findings import Difference, DifferenceKind, Findings, Outcome
from mirrormaker.audit.running_findings import DIFFERENCES_SHOWN, RunningFindings

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def found(
    source: TopicPartition, records: int, *, missing: tuple[int, ...] = (), pending: int = 0
) -> Findings:
    findings = Findings(records=records, equal=records - len(missing))
    findings.outcomes = Counter({Outcome.PENDING: pending, Outcome.LEFT_OUT: 1})
    for offset in missing:
        findings.add(
            Difference(
                kind=DifferenceKind.MISSING,
                source=source,
                source_offset=offset,
                destination=source,
                destination_offset=offset,
            )
        )
    return findings


def test_what_stands_is_as_it_was_last_and_all_else_adds_up() -> None:
    running = RunningFindings()
    running.take(FIRST, found(FIRST, 10, missing=(3,), pending=4))
    running.take(FIRST, found(FIRST, 5, pending=2))
    total = running.total([FIRST])
    assert (total.records, total.equal, total.differing) == (15, 14, {DifferenceKind.MISSING: 1})
    assert (total.outcomes[Outcome.PENDING], total.outcomes[Outcome.LEFT_OUT]) == (2, 2)


def test_a_partition_that_another_process_copies_is_told_by_that_alone() -> None:
    here, there = RunningFindings(), RunningFindings()
    here.take(FIRST, found(FIRST, 10, missing=(3,)))
    here.take(SECOND, found(SECOND, 7, missing=(1,)))
    there.take(SECOND, found(SECOND, 7, missing=(1,)))
    told = [here.total([FIRST]), there.total([SECOND])]
    assert sum(each.records for each in told) == 17
    assert sum(each.differing[DifferenceKind.MISSING] for each in told) == 2
    assert [each.source for findings in told for each in findings.differences] == [FIRST, SECOND]
    assert here.total([FIRST, SECOND]).records == 17  # it is back: what was judged here goes on


def test_of_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    running = RunningFindings()
    offsets = tuple(range(0, 4 * DIFFERENCES_SHOWN, 2))
    running.take(FIRST, found(FIRST, 100, missing=offsets))
    total = running.total([FIRST])
    assert len(total.differences) == DIFFERENCES_SHOWN
    assert total.differing[DifferenceKind.MISSING] == len(offsets)
