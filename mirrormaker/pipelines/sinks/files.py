"""Files in folders: `pipelines/table` has them change by whole batches and whole windows alone."""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.sinks.sink import SinkPlace, partition_columns
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import FileError
from mirrormaker.pipelines.windows import DATE, Span
from mirrormaker.topology.model import FileFormat, FileSink, SinkSpec

WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's writers of text cut times off behind the milliseconds."""
_WITH_BLANKS = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""Spark's writer of CSV cuts blanks off at both ends of a text."""

_IN_QUOTES = {"quoteAll": "true"}


class FilesSink:
    """A sink `parquet`, `json` or `csv`."""

    def __init__(self, place: SinkPlace, sink: SinkSpec, frame: DataFrame) -> None:
        self._place = place
        self._frame = frame
        self._key = f"{place.generation}-{place.identity}"
        self._table = table_of(place.spark, sink, frame)

    @property
    def window_columns(self) -> tuple[str, ...]:
        columns = self._table.layout.partition_by
        return columns if DATE in columns else ()

    def claim(self) -> None:
        self._table.claim(self._place.pipeline.name, self._place.generation)
        self._table.recover()
        self._table.note_layout()
        self._table.note_columns(self._frame)

    def append(self, number: int, frame: DataFrame) -> int:
        return self._table.append(self._key, number, frame)

    def holds(self, number: int) -> bool:
        return self._table.holds(self._key, number)

    def passes_over(self, number: int) -> bool:
        return self.holds(number)

    def replace(self, asked: Span, frame: DataFrame) -> tuple[list[str], int]:
        windows, rows = self._table.replace(asked, frame)
        return [f"{self._table.files.root}/{window}" for window in windows], rows


def table_of(spark: SparkSession, sink: SinkSpec, frame: DataFrame) -> Table:
    """The table that a sink writes."""
    assert isinstance(sink.target, FileSink)
    folders = partition_columns(sink, frame)
    layout = TableLayout(
        format=sink.target.format.value,
        partition_by=folders,
        options={
            **_usual_options(sink.target.format, set(frame.columns) - set(folders), sink.options),
            **sink.options,
        },
    )
    return Table(spark, sink.target.path, layout)


def _usual_options(form: FileFormat, columns: Set[str], said: Mapping[str, str]) -> Mapping[str, str]:
    """Those by which rows are written as they are. A line of nothing but blanks is none for readers of
    Spark's, so that a single column of CSV is in quotes; where others than the usual ones are `said`, without
    its blanks.
    """
    match form:
        case FileFormat.PARQUET:
            return {}
        case FileFormat.JSON:
            return WHOLE_TIMES
        case FileFormat.CSV:
            if len(columns) > 1:
                return {**WHOLE_TIMES, **_WITH_BLANKS}
            has_quotes = {"quote", "quoteall"}.isdisjoint(name.lower() for name in said)
            return {**WHOLE_TIMES, **({**_WITH_BLANKS, **_IN_QUOTES} if has_quotes else {})}


def reach_problems(spark: SparkSession, sink: SinkSpec, frame: DataFrame) -> list[str]:
    """What the files that are there have against the rows; an unreachable folder is told by itself."""
    try:
        table = table_of(spark, sink, frame)
        return table.changed_layout() or table.changed_columns(frame)
    except FileError:
        return []
