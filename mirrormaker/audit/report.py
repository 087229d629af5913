"""Audits for eyes and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from mirrormaker.audit.findings import Difference
from mirrormaker.audit.hops import HopAudit
from mirrormaker.audit.outcome import PartitionAudit, RouteAudit, WindowCount
from mirrormaker.audit.windows import format_time

WIDTH_WITHOUT_TERMINAL = 160
SHOWN_DIFFERENCES = 20


def render_text(
    audits: Sequence[RouteAudit], hops: Sequence[HopAudit], stream: TextIO, *, by_window: bool
) -> None:
    """A line for each route, or for each partition and span of time; then what differs and what could not be
    judged.
    """
    console = Console(file=stream, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)
    console.print(_window_table(audits) if by_window else _route_table(audits))
    for line in (*_lines(audits), *_hop_lines(hops)):
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
    for crc in (None, None) if window.sums is None else window.sums[1:]:
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


def _hop_lines(hops: Sequence[HopAudit]) -> Iterator[str]:
    for cluster in dict.fromkeys(hop.cluster for hop in hops):
        own = [hop for hop in hops if hop.cluster == cluster]
        lines = [line for hop in own if (line := hop.line()) is not None]
        if not lines:
            records = sum(hop.records for hop in own)
            yield f"{cluster}: checksums of {records:,} records agree between routes to and from there"
        yield from lines[:SHOWN_DIFFERENCES]


def render_json(audits: Sequence[RouteAudit], hops: Sequence[HopAudit]) -> dict[str, Any]:
    """Plain data."""
    return {
        "differs": any(audit.has_differences for audit in audits) or any(hop.differing for hop in hops),
        "routes": [_route_document(audit) for audit in audits],
        "hops": [_hop_document(hop) for hop in hops],
    }


def _hop_document(hop: HopAudit) -> dict[str, Any]:
    return {
        "cluster": hop.cluster,
        "topic": hop.partition.topic,
        "partition": hop.partition.partition,
        "written_by": list(hop.writers),
        "read_by": hop.reader,
        "records": hop.records,
        "differing": hop.differing,
        "found": [
            {
                "offsets": list(each.offsets),
                "records": each.records,
                "written_crc": each.written_crc,
                "read_crc": each.read_crc,
            }
            for each in hop.differences
        ],
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
    sums = window.sums
    return {
        "from_ms": window.window.from_ms,
        "to_ms": window.window.to_ms,
        "offsets": list(window.source),
        "copied": window.copied,
        "uncopied": window.uncopied,
        "unrecorded": window.unrecorded,
        "to_offsets": None if window.to is None else list(window.to),
        "source_crc": None if sums is None else sums.source_crc,
        "crc": None if sums is None else sums.crc,
        "crc_of": None if sums is None else list(sums.source),
    }
