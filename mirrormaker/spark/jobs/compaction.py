"""Compaction: the many small files of a window become few big ones, and no row changes; of JSON and CSV, no
letter does.

    job: mirrormaker.spark.jobs.compaction:run
    arguments: {pipeline: hourly, file_bytes: 134217728, files_min: 4}

Works on the tables of one pipeline of the same file, which it holds meanwhile: it waits until a load is over
that is under way, which one without an end soon is, and the next waits for it. Where a daemon on another host
has the pipeline nothing is done here. A window whose files are big enough, or fewer than `files_min`, is left
alone. A table without subfolders is one window.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from broker.clock import SystemClock
from broker.errors import ConfigurationError
from mirrormaker.pipelines.command_lines import find_pipeline
from mirrormaker.pipelines.hold import HeldElsewhereError, end_at_once, held
from mirrormaker.pipelines.line_files import LineFiles, counts_of
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED
from mirrormaker.pipelines.windows import columns_of
from mirrormaker.spark.jobs.window_files import Sizes, can_go_together, name_as_table, stage_together
from mirrormaker.topology.model import FileSink, PipelineSpec, Topology

FILE_BYTES = 128 << 20
FILES_MIN = 4
LOAD_SECONDS = 3600.0
"""How long a load that is under way is waited for."""
WINDOWS_AT_ONCE = 500
BYTES_AT_ONCE = 1 << 30
_KNOWN = ("pipeline", "file_bytes", "files_min")


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Compact; returns how many windows and files became how many. Raises ConfigurationError."""
    if problems := list(_problems(arguments)):
        raise ConfigurationError(problems)
    pipeline = find_pipeline(topology, arguments["pipeline"])
    file_bytes = int(arguments.get("file_bytes", FILE_BYTES))
    files_min = int(arguments.get("files_min", FILES_MIN))
    figures = {"windows": 0, "files_before": 0, "files_after": 0}
    until = time.monotonic() + LOAD_SECONDS
    try:
        with (
            held(topology, pipeline, SystemClock(), end_at_once),
            PipelineFolder(topology.data_dir, pipeline.name).locked(lambda: time.monotonic() < until),
        ):
            for table in _tables(spark, pipeline):
                table.recover()
                for name, count in compact(spark, table, file_bytes, files_min).items():
                    figures[name] += count
    except HeldElsewhereError as error:
        return {**figures, "left": error.reason}
    return figures


def _tables(spark: SparkSession, pipeline: PipelineSpec) -> Iterator[Table]:
    """Those of files that it loads."""
    for sink in pipeline.sinks:
        if isinstance(sink.target, FileSink):
            layout = TableLayout(format=sink.target.format.value, options=sink.options)
            yield Table(spark, sink.target.path, layout)


def _problems(arguments: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(arguments.keys() - set(_KNOWN)):
        yield f"arguments.{name}: unknown, there are {', '.join(_KNOWN)}"
    if "pipeline" not in arguments:
        yield "arguments: lack 'pipeline', whose tables are meant"
    for name in ("file_bytes", "files_min"):
        text = arguments.get(name, "1")
        if not (text.isascii() and text.isdecimal() and int(text) > 0):
            yield f"arguments.{name}: {text!r} is no whole number greater than 0"


def compact(spark: SparkSession, table: Table, file_bytes: int, files_min: int) -> dict[str, int]:
    """Write windows with too many files anew: those that become one file many at once, for a job of Spark
    takes a second however little there is to do.
    """
    figures = {"windows": 0, "files_before": 0, "files_after": 0}
    alone: list[str] = []
    together: dict[tuple[str, ...], list[str]] = {}
    due = _windows_due(table, file_bytes, files_min)
    for window, sizes in due.items():
        columns = tuple(columns_of(window))
        if sum(sizes.values()) <= file_bytes and can_go_together(table.layout, columns):
            together.setdefault(columns, []).append(window)
        else:
            alone.append(window)
    for window in alone:
        stage = _stage_rows if table.layout.format == "parquet" else _stage_lines
        staged = stage(spark, table, window, due[window], file_bytes)
        if staged is not None:
            _take_in(table, staged, {window: due[window]}, figures)
    for columns, windows in together.items():
        for some in _batches(windows, due):
            _take_in(table, stage_together(spark, table, columns, some), some, figures)
    return figures


def _windows_due(table: Table, file_bytes: int, files_min: int) -> dict[str, dict[str, int]]:
    """Those with too many files: of each the sizes of its files, by their addresses."""
    by_window: dict[str, list[str]] = {}
    for name in table.files.list_files(""):
        by_window.setdefault(name.rpartition("/")[0], []).append(name)
    found = {}
    for window, names in sorted(by_window.items()):
        if len(names) < files_min or (not window and len(by_window) > 1):
            continue
        sizes = {table.files.url(name): table.files.size_of(name) for name in names}
        if len(sizes) > counts_of(sizes, [list(sizes)], file_bytes)[0]:
            found[window] = sizes
    return found


def _batches(windows: list[str], due: Mapping[str, Sizes]) -> Iterator[dict[str, Sizes]]:
    """Some at a time, so that what stands aside is bounded."""
    some: dict[str, Sizes] = {}
    for window in windows:
        some[window] = due[window]
        if len(some) == WINDOWS_AT_ONCE or sum(sum(each.values()) for each in some.values()) >= BYTES_AT_ONCE:
            yield some
            some = {}
    if some:
        yield some


def _take_in(table: Table, staged: str, windows: Mapping[str, Sizes], figures: dict[str, int]) -> None:
    figures["windows"] += len(windows)
    figures["files_before"] += sum(map(len, windows.values()))
    figures["files_after"] += len(table.files.list_files(staged))
    table.swap(staged, list(windows))


def _stage_rows(spark: SparkSession, table: Table, window: str, sizes: Sizes, file_bytes: int) -> str:
    """The rows of these files in fewer, aside."""
    (wanted,) = counts_of(sizes, [list(sizes)], file_bytes)
    rows = spark.read.format(table.layout.format).options(**table.layout.options)
    rows = rows.options(mergeSchema="true", **AS_NAMED)  # not all files have columns that came later
    return table.stage(rows.load(list(sizes)).coalesce(wanted), table.layout, window)


def _stage_lines(spark: SparkSession, table: Table, window: str, sizes: Sizes, file_bytes: int) -> str | None:
    """As `_stage_rows`, for files of lines; None where these are no more than there are to be."""
    files = LineFiles(spark, table.layout)
    groups = files.groups(sizes)
    counts = counts_of(sizes, groups, file_bytes)
    if len(sizes) <= sum(counts):
        return None
    staged = None
    for group, count in zip(groups, counts, strict=True):
        staged = table.stage(files.joined(group, count), files.layout, window, staged)
    assert staged is not None
    name_as_table(table, files, staged)
    return staged
