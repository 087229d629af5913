"""Audits for eyes and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from mirrormaker.audit.findings import Difference
from mirrormaker.audit.header_check import told_ranges
from mirrormaker.audit.hops import HopAudit
from mirrormaker.audit.outcome import PartitionAudit, RouteAudit, WindowCount
from mirrormaker.audit.window_tally import ReadCount
from mirrormaker.audit.windows import format_time

WIDTH_WITHOUT_TERMINAL = 1_000
"""More than any table is wide: what reads them wants a row a line, and names whole."""
SHOWN_DIFFERENCES = 20


def render_text(
    audits: Sequence[RouteAudit], hops: Sequence[HopAudit], stream: TextIO, *, by_window: bool
) -> None:
    """A line for each route, or for each partition and span of time; then what differs and what could not be
    judged.
    """
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=stream, width=width, highlight=False, emoji=False)
    table = _route_table
    if by_window:
        table = _read_table if any(audit.is_deep for audit in audits) else _window_table
    console.print(table(audits))
    for line in (*_lines(audits), *_hop_lines(hops)):
        console.print(line, markup=False, soft_wrap=True)


def _route_table(audits: Sequence[RouteAudit]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("ROUTE", "BY", "RESULT"):
        table.add_column(title, overflow="fold")
    for title in ("PARTITIONS", "RECORDS", "EQUAL", "DIFFERENCES"):
        table.add_column(title, justify="right", overflow="fold")
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
        table.add_column(title, overflow="fold")
    for title in ("OFFSETS", "COPIED", "UNCOPIED", "UNRECORDED", "SOURCE CRC", "CRC"):
        table.add_column(title, justify="right", overflow="fold")
    for audit in audits:
        for partition in audit.partitions:
            for window in partition.windows:
                if window.source.length:
                    table.add_row(audit.route, str(partition.source), *_window_cells(window))
    return table


def _read_table(audits: Sequence[RouteAudit]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("ROUTE", "PARTITION", "FROM"):
        table.add_column(title, overflow="fold")
    for title in ("RECORDS", "AT DESTINATION", "CHECKSUM", "AT DESTINATION"):
        table.add_column(title, justify="right", overflow="fold")
    for audit in audits:
        for partition in audit.partitions:
            for each in partition.read_windows:
                table.add_row(
                    audit.route,
                    str(partition.source),
                    format_time(each.window.from_ms),
                    f"{each.records:,}",
                    f"{each.to_records:,}",
                    f"{each.checksum:x}",
                    f"{each.to_checksum:x}",
                )
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
        kept = [each for partition in audit.partitions for each in partition.kept_copies]
        yield from (f"{audit.route}: {each.line()}" for each in kept[:SHOWN_DIFFERENCES])
        differences = [each for partition in audit.partitions for each in partition.findings.differences]
        yield from _difference_lines(audit, differences)
        yield from _header_lines(audit)
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


def _header_lines(audit: RouteAudit) -> Iterator[str]:
    """Which log is another than what was copied."""
    for each in audit.partitions:
        for ranges, side in (
            (each.headers.changed_source, f"its log at {audit.source} has changed since it was copied"),
            (each.headers.changed_destination, f"its copy at {audit.destination} has changed since"),
        ):
            if ranges:
                yield f"{audit.route}: {each.source} offsets {told_ranges(ranges)}: {side}"


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
        "lost_at_source": [each.document() for each in audit.kept_copies],
        "windows": [_window_document(window) for window in audit.windows],
        "read_windows": [_read_document(each) for each in audit.read_windows],
        "headers": {
            "pages": audit.headers.pages,
            "changed_source": [list(each) for each in audit.headers.changed_source],
            "changed_destination": [list(each) for each in audit.headers.changed_destination],
        },
    }


def _read_document(count: ReadCount) -> dict[str, Any]:
    return {
        "from_ms": count.window.from_ms,
        "to_ms": count.window.to_ms,
        "records": count.records,
        "checksum": count.checksum,
        "to_records": count.to_records,
        "to_checksum": count.to_checksum,
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
