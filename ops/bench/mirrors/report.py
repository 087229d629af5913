"""The comparison as text: one line a case, goals beside. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.records.batch import Codec
from ops.bench.comparison.cases import Figure
from ops.bench.mirrors.cases import CaseOutcome, Delay, Outcome

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
        f"bare loop over sockets: {loop.megabytes_per_second:.0f} MB/s, {loop.cpu_per_gigabyte:.2f} CPU s/GB"
    )
    yield ""
    yield from _table(
        [
            "",
            "MB/s",
            theirs,
            f"ratio (goal {SPEED_GOAL:g})",
            "CPU s/GB",
            theirs,
            f"ratio (goal {CPU_GOAL:g}, compressed)",
            f"resident MB (goal {RESIDENT_GOAL_MB})",
            theirs,
        ],
        (_copying_row(each, ours, theirs) for each in done if {ours, theirs} <= each.by_mirror.keys()),
    )
    yield ""
    yield from _table(
        ["", "MB/s", "loop", f"share (goal {LOOP_GOAL:g})", "CPU s/GB", "loop", "share", "of sockets alone"],
        (_loop_row(each, ours, loop) for each in done if ours in each.by_mirror and each.passing_on),
    )
    yield ""
    yield from _table(
        [
            "",
            "at MB/s",
            "median ms",
            f"p99 ms (goal {P99_GOAL_MS})",
            f"{theirs} at MB/s",
            "median ms",
            "p99 ms",
        ],
        (_delay_row(each, ours, theirs) for each in done if any(o.delay for o in each.by_mirror.values())),
    )


def _table(head: _Row, rows: Iterable[_Row]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _copying_row(each: CaseOutcome, ours: str, theirs: str) -> _Row:
    mine, other = each.by_mirror[ours].copying, each.by_mirror[theirs].copying
    speed = mine.figure.megabytes_per_second / other.figure.megabytes_per_second
    cpu = other.figure.cpu_per_gigabyte / mine.figure.cpu_per_gigabyte
    is_compressed = each.case.codec is not Codec.NONE
    return [
        each.case.title,
        f"{mine.figure.megabytes_per_second:.0f}",
        f"{other.figure.megabytes_per_second:.0f}",
        _judged(f"{speed:.1f}", speed >= SPEED_GOAL),
        f"{mine.figure.cpu_per_gigabyte:.2f}",
        f"{other.figure.cpu_per_gigabyte:.2f}",
        _judged(f"{cpu:.1f}", cpu >= CPU_GOAL) if is_compressed else f"{cpu:.1f}",
        _judged(f"{mine.resident_bytes / 1e6:.0f}", mine.resident_bytes < RESIDENT_GOAL_MB * 1e6),
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


def _delay_row(each: CaseOutcome, ours: str, theirs: str) -> _Row:
    return [
        each.case.title,
        *_delay_cells(each.by_mirror.get(ours), is_judged=True),
        *_delay_cells(each.by_mirror.get(theirs), is_judged=False),
    ]


def _delay_cells(outcome: Outcome | None, *, is_judged: bool) -> _Row:
    delay = None if outcome is None else outcome.delay
    if delay is None:
        return ["", "", ""]
    p99 = _judged(f"{delay.p99_ms:.1f}", delay.p99_ms < P99_GOAL_MS) if is_judged else f"{delay.p99_ms:.1f}"
    return [f"{delay.megabytes_per_second:.1f}", f"{delay.median_ms:.1f}", p99 + _lacking(delay)]


def _lacking(delay: Delay) -> str:
    return f", {delay.missing} batches late" if delay.missing else ""


def _judged(text: str, is_met: bool) -> str:
    return text if is_met else f"{text}, missed"
