"""Files of JSON and CSV put together as they are, to the letter.

Their lines are not understood, for that would write numbers, times and the order of keys as Spark does, and
lose columns that came later. A file is one task's and its lines keep their order, so that values of CSV may
have line ends in them. Files that begin with a line of names keep it, those of other names apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines.sinks.outbox import WHOLE_FILES
from mirrormaker.pipelines.table import TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED

NAMES_AS_TEXT = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
"""What subfolders are named by is written as it was read: `hour=07` is no number."""
_EXTENSION = ".txt"
_LINE_END = "\n"
_OF_A_TASK = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of one task."""


class LineFiles:
    """Those of one table."""

    def __init__(self, spark: SparkSession, layout: TableLayout) -> None:
        """Raises ConfigurationError for files whose lines cannot be told without understanding them."""
        options = {name.lower(): value for name, value in layout.options.items()}
        encoding = options.get("encoding", options.get("charset", "UTF-8"))
        if encoding.upper() not in ("UTF-8", "UTF8"):
            raise ConfigurationError([f"files in {encoding} cannot be put together: in UTF-8 they can"])
        self._spark = spark.newSession()
        for name, value in {**WHOLE_FILES, **NAMES_AS_TEXT}.items():
            self._spark.conf.set(name, value)
        self._has_names = layout.has_names
        self._extension = f".{layout.format}"
        self._line_end = options.get("linesep", _LINE_END)
        kept = {name: options[name] for name in ("compression",) if name in options}
        self.layout = TableLayout(format="text", options={**kept, "lineSep": self._line_end})

    def lines_of_windows(
        self, urls: list[str], root: str, columns: Sequence[str], *, file: str, row: str
    ) -> DataFrame:
        """The lines of files below `root`, the columns that its subfolders are named by, and, under the names
        that are given, which file and line of it each is.
        """
        named = [f.col(f"`{name}`") for name in columns]
        reader = self._spark.read.format("text").options(lineSep=self._line_end, **AS_NAMED)
        return (
            reader.option("basePath", root)
            .load(urls)
            .select("value", *named, f.col("_metadata.file_path").alias(file), _line_number().alias(row))
        )

    def groups(self, urls: Iterable[str]) -> list[list[str]]:
        """Files that can be put together."""
        urls = list(urls)
        if not self._has_names:
            return [urls]
        rows = self._lines(urls).where("number = 0").select("path", "value").collect()
        names = {row.path.rpartition("/")[2]: row.value for row in rows}
        groups: dict[str | None, list[str]] = {}
        for url in urls:
            groups.setdefault(names.get(url.rpartition("/")[2]), []).append(url)
        return list(groups.values())

    def joined(self, urls: list[str], count: int) -> DataFrame:
        """The lines of a group, for `count` files."""
        lines = self._lines(urls)
        if not self._has_names:
            return lines.select("value").coalesce(count)
        first = lines.where("number = 0").select("value").first()
        if first is None:
            return lines.select("value").coalesce(count)
        rows = lines.where("number > 0").select("value").coalesce(count)
        return rows.mapInArrow(_Headed(first.value), "value string")

    def named(self, name: str) -> str:
        """What a file is called that was written as text."""
        stem, _, rest = name.rpartition(_EXTENSION)
        return f"{stem}{self._extension}{rest}" if stem else name

    def _lines(self, urls: list[str]) -> DataFrame:
        reader = self._spark.read.format("text").options(lineSep=self._line_end, **AS_NAMED)
        return reader.load(urls).select(
            "value", f.col("_metadata.file_path").alias("path"), _line_number().alias("number")
        )


def _line_number() -> Column:
    """Of the lines of a task, which reads one file after the other, whole."""
    return f.monotonically_increasing_id().bitwiseAND(_OF_A_TASK)


class _Headed:
    """Puts a line before those of each task."""

    def __init__(self, line: str) -> None:
        self._line = line

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return chain([pa.RecordBatch.from_pydict({"value": [self._line]})], batches)


def counts_of(sizes: Mapping[str, int], groups: Iterable[list[str]], file_bytes: int) -> list[int]:
    """Of how many files each group is to be, none of them much bigger than so."""
    return [max(-(-sum(sizes[url] for url in group) // file_bytes), 1) for group in groups]
