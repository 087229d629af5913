"""The command line that comparisons with Apache Kafka have in common."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ops.bench.comparison.servers import missing_tool


def comparison_parser(description: str | None, *, seconds: float) -> argparse.ArgumentParser:
    """Options of every comparison; each case takes `seconds` unless the option says otherwise."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=seconds, help="time to produce for in each case")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases whose titles have these")
    parser.add_argument("--directory", type=Path, help="where the servers write; default: temporary")
    return parser


def run_comparison(
    name: str, options: argparse.Namespace, compare: Callable[[Path, argparse.Namespace], None]
) -> None:
    """Call `compare` with a directory that is removed in the end, unless a tool is missing: then say so."""
    reason = missing_tool()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.directory))
    try:
        compare(directory, options)
    finally:
        shutil.rmtree(directory)
