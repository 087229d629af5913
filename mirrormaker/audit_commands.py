"""`mirrormaker audit`: whether destinations have what their sources had."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Callable

from broker.errors import ConfigurationError
from mirrormaker.audit.auditor import AuditOrder, audit_routes
from mirrormaker.audit.hops import HopAudit, compare_hops
from mirrormaker.audit.outcome import RouteAudit
from mirrormaker.audit.report import render_json, render_text
from mirrormaker.audit.windows import TimeWindow, parse_span, parse_time
from mirrormaker.status import load_for_status

_AddVerb = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
EQUAL, FAILED, DIFFERENT = 0, 1, 2


def add_audit_verb(add_verb: _AddVerb) -> None:
    """`audit FILE [--route NAME] [--topic T] [--from TIME] [--to TIME] [--window SPAN] [--deep]`."""
    verb = add_verb("audit", _audit, "compare what is at destinations with what their sources had")
    verb.add_argument(
        "--route", action="append", default=[], dest="routes", metavar="NAME", help="all if left out"
    )
    verb.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="T",
        help="of the source; all if left out",
    )
    for side, dest in (("from", "from_ms"), ("to", "to_ms")):
        verb.add_argument(
            f"--{side}",
            dest=dest,
            type=_parsed(parse_time),
            metavar="TIME",
            help="such as 2026-01-31T12:00:00Z",
        )
    verb.add_argument("--window", type=_parsed(parse_span), metavar="SPAN", help="count by spans such as 5m")
    verb.add_argument("--deep", action="store_true", help="read both sides, record by record")
    verb.add_argument("--output", choices=["text", "json"], default="text")


def _parsed(parse: Callable[[str], int]) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def _audit(options: argparse.Namespace) -> int:
    topology = load_for_status(options.file)
    try:
        window = TimeWindow(from_ms=options.from_ms, to_ms=options.to_ms)
    except ValueError as error:
        raise ConfigurationError([str(error)]) from error
    order = AuditOrder(
        routes=tuple(options.routes),
        topics=tuple(options.topics),
        window=window,
        span_ms=options.window,
        is_deep=options.deep,
    )
    with contextlib.redirect_stdout(sys.stderr):  # what functions of a route print is no data of a command
        audits = asyncio.run(audit_routes(topology, order))
    hops = compare_hops(audits)
    if options.output == "json":
        sys.stdout.write(json.dumps(render_json(audits, hops), indent=2) + "\n")
    else:
        render_text(audits, hops, sys.stdout, by_window=options.window is not None)
    return _exit_code(audits, hops)


def _exit_code(audits: list[RouteAudit], hops: list[HopAudit]) -> int:
    if any(audit.has_differences for audit in audits) or any(hop.differing for hop in hops):
        return DIFFERENT
    return FAILED if any(audit.problems for audit in audits) else EQUAL
