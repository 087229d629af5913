"""Audits for eyes and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from mirrormaker.audit.findings import Difference
from mirrormaker.audit.outcome import PartitionAudit, RouteAudit, WindowCount
from mirrormaker.audit.windows import format_time

WIDTH_WITHOUT_TERMINAL = 160
SHOWN_DIFFERENCES = 20


def render_text(audits: Sequence[RouteAudit], stream: TextIO, *, by_window: bool) -> None:
    """A line for each route, or for each partition and span of time; then what differs and what could not be
    judged.
    """
    console = Console(file=stream, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)
    console.print(_window_table(audits) if by_window else _route_table(audits))
    for line in _lines(audits):
        console.print(line, markup=False, soft_wrap=True)


def _route_table(audits: Sequence[RouteAudit]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("ROUTE", "BY", "RESULT"):
        table.add_column(title)
    for title in ("PARTITIONS", "RECORDS", "EQUAL", "DIFFERENCES"):
        table.add_column(title, justify="right")
    for audit in audits:
        findings = audit.findings
        table.add_row(
            audit.route,
            "reading" if audit.is_deep else "ledger",
            _result(audit),
            f"{len(audit.partitions):,}",
            f"{findings.records:,}",
            f"{findings.equal:,}",
            f"{findings.differing.total():,}",
        )
    return table


def _result(audit: RouteAudit) -> str:
    if audit.has_differences:
        return "different"
    if audit.problems:
        return "not judged" if not audit.findings.records else "equal as far as judged"
    return "equal"


def _window_table(audits: Sequence[RouteAudit]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("ROUTE", "PARTITION", "FROM"):
        table.add_column(title)
    for title in ("OFFSETS", "COPIED", "UNCOPIED", "UNRECORDED", "SOURCE CRC", "CRC"):
        table.add_column(title, justify="right")
    for audit in audits:
        for partition in audit.partitions:
            for window in partition.windows:
                if window.source.length:
                    table.add_row(audit.route, str(partition.source), *_window_cells(window))
    return table


def _window_cells(window: WindowCount) -> Iterator[str]:
    yield format_time(window.window.from_ms)
    for count in (window.source.length, window.copied, window.uncopied, window.unrecorded):
        yield f"{count:,}"
    for crc in (window.source_crc, window.crc):
        yield "-" if crc is None else f"{crc:x}"


def _lines(audits: Sequence[RouteAudit]) -> Iterator[str]:
    for audit in audits:
        yield from _outcome_lines(audit)
        differences = [each for partition in audit.partitions for each in partition.findings.differences]
        yield from _difference_lines(audit, differences)
        yield from (f"{audit.route}: not judged: {problem}" for problem in audit.problems)


def _outcome_lines(audit: RouteAudit) -> Iterator[str]:
    outcomes = audit.findings.outcomes
    told = [f"{count:,} {outcome.value.replace('_', ' ')}" for outcome, count in outcomes.items() if count]
    if told:
        yield f"{audit.route}: no differences: {', '.join(told)}"


def _difference_lines(audit: RouteAudit, differences: Sequence[Difference]) -> Iterator[str]:
    if differences:
        yield f"{audit.route}: the first difference: {differences[0].line()}"
    yield from (f"{audit.route}: {each.line()}" for each in differences[1:SHOWN_DIFFERENCES])
    if len(differences) > SHOWN_DIFFERENCES:
        yield f"{audit.route}: and more; --output json has {len(differences)} of them"


def render_json(audits: Iterable[RouteAudit]) -> dict[str, Any]:
    """Plain data."""
    told = list(audits)
    return {
        "differs": any(audit.has_differences for audit in told),
        "routes": [_route_document(audit) for audit in told],
    }


def _route_document(audit: RouteAudit) -> dict[str, Any]:
    first = audit.first_difference
    return {
        "name": audit.route,
        "from": audit.source,
        "to": audit.destination,
        "deep": audit.is_deep,
        "result": _result(audit),
        "problem": audit.problem,
        "first_difference": None if first is None else first.document(),
        **audit.findings.document(),
        "bytes_read": audit.bytes_read,
        "partitions": [_partition_document(each) for each in audit.partitions],
    }


def _partition_document(audit: PartitionAudit) -> dict[str, Any]:
    return {
        "topic": audit.source.topic,
        "partition": audit.source.partition,
        "from": audit.window.first,
        "to": audit.window.next,
        "ledger": audit.has_ledger,
        "problem": audit.problem,
        **audit.findings.document(),
        "found": [each.document() for each in audit.findings.differences],
        "windows": [_window_document(window) for window in audit.windows],
    }


def _window_document(window: WindowCount) -> dict[str, Any]:
    return {
        "from_ms": window.window.from_ms,
        "to_ms": window.window.to_ms,
        "offsets": list(window.source),
        "copied": window.copied,
        "uncopied": window.uncopied,
        "unrecorded": window.unrecorded,
        "to_offsets": None if window.to is None else list(window.to),
        "source_crc": window.source_crc,
        "crc": window.crc,
    }
