"""The comparison as text: one line a case, goals beside. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.records.batch import Codec
from ops.bench.comparison.cases import Figure
from ops.bench.mirrors.cases import CaseOutcome, Delay
from ops.bench.mirrors.contenders import OURS

CPU_GOAL = 5.0
"""MirrorMaker 2's CPU seconds per GB over ours, of compressed batches."""
SPEED_GOAL = 3.0
"""Our MB/s over MirrorMaker 2's, on the one core."""
RESIDENT_GOAL_MB = 120
P99_GOAL_MS = 50
LOOP_GOAL = 0.6

_Row = list[str]


def lines(outcomes: Iterable[CaseOutcome], loop: Figure, ours: str, theirs: str) -> Iterator[str]:
    """Tables in Markdown."""
    done = list(outcomes)
    yield (
        f"bytes from socket to socket, without requests (not judged): {loop.megabytes_per_second:.0f} MB/s, "
        f"{loop.cpu_per_gigabyte:.2f} CPU s/GB"
    )
    yield ""
    yield from _table(
        [
            "",
            "MB/s",
            "CPU s/GB",
            f"resident MB (goal {RESIDENT_GOAL_MB})",
            f"{theirs}: MB/s",
            f"ratio (goal {SPEED_GOAL:g})",
            "CPU s/GB",
            f"ratio (goal {CPU_GOAL:g}, compressed)",
            "resident MB",
        ],
        (_copying_row(each, ours, theirs) for each in done if ours in each.by_mirror),
    )
    yield ""
    yield from _table(
        [
            "beside the loop that fetches and produces the same",
            "MB/s",
            "loop",
            f"share (goal {LOOP_GOAL:g})",
            "CPU s/GB",
            "loop",
            "share",
            "of socket to socket",
        ],
        (_loop_row(each, ours, loop) for each in done if ours in each.by_mirror and each.passing_on),
    )
    yield ""
    yield from _table(
        [
            "delays",
            "at MB/s",
            "median ms",
            "p99 ms",
            "nodes' core busy",
            "mirror",
            "load beside it",
            "stolen ms",
        ],
        (row for each in done for row in _delay_rows(each)),
    )


def _table(head: _Row, rows: Iterable[_Row]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _copying_row(each: CaseOutcome, ours: str, theirs: str) -> _Row:
    mine = each.by_mirror[ours].copying
    row = [
        each.case.title,
        f"{mine.figure.megabytes_per_second:.0f}",
        f"{mine.figure.cpu_per_gigabyte:.2f}",
        _judged(f"{mine.resident_bytes / 1e6:.0f}", mine.resident_bytes < RESIDENT_GOAL_MB * 1e6),
    ]
    if theirs not in each.by_mirror:
        return [*row, *[""] * 5]
    other = each.by_mirror[theirs].copying
    speed = mine.figure.megabytes_per_second / other.figure.megabytes_per_second
    cpu = other.figure.cpu_per_gigabyte / mine.figure.cpu_per_gigabyte
    is_compressed = each.case.codec is not Codec.NONE
    return [
        *row,
        f"{other.figure.megabytes_per_second:.0f}",
        _judged(f"{speed:.1f}", speed >= SPEED_GOAL),
        f"{other.figure.cpu_per_gigabyte:.2f}",
        _judged(f"{cpu:.1f}", cpu >= CPU_GOAL) if is_compressed else f"{cpu:.1f}",
        f"{other.resident_bytes / 1e6:.0f}",
    ]


def _loop_row(each: CaseOutcome, ours: str, loop: Figure) -> _Row:
    mine, limit = each.by_mirror[ours].copying.figure, each.passing_on
    assert limit is not None
    share = mine.megabytes_per_second / limit.megabytes_per_second
    return [
        each.case.title,
        f"{mine.megabytes_per_second:.0f}",
        f"{limit.megabytes_per_second:.0f}",
        _judged(f"{share:.2f}", share >= LOOP_GOAL),
        f"{mine.cpu_per_gigabyte:.2f}",
        f"{limit.cpu_per_gigabyte:.2f}",
        f"{limit.cpu_per_gigabyte / mine.cpu_per_gigabyte:.2f}",
        f"{loop.cpu_per_gigabyte / mine.cpu_per_gigabyte:.2f}",
    ]


def _delay_rows(each: CaseOutcome) -> Iterator[_Row]:
    for name, outcome in each.by_mirror.items():
        for number, delay in enumerate(outcome.delays):
            is_judged = name == OURS and not number
            p99 = f"{delay.p99_ms:.1f}"
            yield [
                f"{each.case.title}: {name}",
                f"{delay.megabytes_per_second:.1f}",
                f"{delay.median_ms:.1f}",
                (_judged(f"{p99} (goal {P99_GOAL_MS})", delay.p99_ms < P99_GOAL_MS) if is_judged else p99)
                + _lacking(delay),
                f"{delay.busy.nodes_core:.0%}",
                f"{delay.busy.mirror:.0%}",
                f"{delay.busy.load:.0%}",
                f"{delay.stolen_ms:.0f}",
            ]


def told_delay(delay: Delay) -> str:
    """While it is measured."""
    busy = delay.busy
    return (
        f"median {delay.median_ms:.1f} ms, p99 {delay.p99_ms:.1f} ms{_lacking(delay)}; source "
        f"{busy.source:.0%} of a core, destination {busy.destination:.0%}, load {busy.load:.0%}; "
        f"mirror {busy.mirror:.0%}; stolen by the host {delay.stolen_ms:.0f} ms"
    )


def _lacking(delay: Delay) -> str:
    return f", {delay.missing} batches late" if delay.missing else ""


def _judged(text: str, is_met: bool) -> str:
    return text if is_met else f"{text}, missed"
