"""Records that could not be decoded, each with its reason: a table of Parquet files, by topic and day."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.table import Table, TableLayout
from mirrormaker.pipelines.table_files import AS_NAMED
from mirrormaker.topology.model import PipelineSpec

QUARANTINE = "quarantine"
_LAYOUT = TableLayout(format="parquet", partition_by=("topic", "date"))
_RECORD = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
"""What tells records apart: a topic that was made anew has others in the places of those before."""


class Quarantine:
    """That of a pipeline, whose lock is held."""

    def __init__(
        self, spark: SparkSession, pipeline: PipelineSpec, folder: PipelineFolder, generation: str
    ) -> None:
        """`generation`: of the checkpoint that loads it."""
        self._spark = spark
        self._pipeline = pipeline
        self._generation = generation
        self._key = f"{generation}-{QUARANTINE}"
        self._table = Table(spark, pipeline.quarantine or str(folder.quarantine), _LAYOUT)

    def open(self) -> None:
        """Be the one that writes it, and end what a crash left half done. Raises ConfigurationError when it
        belongs to another checkpoint.
        """
        self._table.claim(self._pipeline.name, self._generation)
        self._table.recover()

    def holds(self, number: int) -> bool:
        """Whether records of a batch may be in it."""
        return self._table.holds(self._key, number)

    def append(self, number: int, malformed: DataFrame) -> int:
        """Add those of a batch, once; returns how many it has. One that comes again may have more: what the
        schema of before could decode goes into no sink any more.
        """
        if self.holds(number):
            return self._table.append(self._key, number, malformed) + self.add_lacking(malformed)
        return 0 if malformed.isEmpty() else self._table.append(self._key, number, malformed)

    def add_lacking(self, malformed: DataFrame) -> int:
        """Add those that are not there yet; returns how many."""
        known = self._spark.read.options(**AS_NAMED).schema(_RECORD).parquet(self._table.files.url(""))
        is_same = [malformed[name].eqNullSafe(known[name]) for name in known.columns]
        lacking = malformed.join(known, is_same, "left_anti")
        return 0 if lacking.isEmpty() else self._table.add(lacking)
