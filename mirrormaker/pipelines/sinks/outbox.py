"""Rows on their way to a topic, each batch of them once, whatever is killed between.

They are kept aside before they are sent, so that a batch that comes again is the same to the last row,
whatever its steps compute anew; each file of them is one transaction of one task, which is known again by the
batch's number (`spark/sink_transactions`). Below a folder of a checkpoint there are

    STAGED/       the rows, as Parquet, by a name that no attempt before had: one that was killed may still
                  write for a moment; removed once they are sent
    NUMBER.json   made when all rows are there: where, and how many; then, that they are sent
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrormaker.pipelines.notes import read_note, write_note
from mirrormaker.pipelines.sinks.kept_rows import can_be_given_up, count_sendable
from mirrormaker.pipelines.table_files import AS_NAMED, TableFiles
from mirrormaker.spark import MirrorDataSource
from mirrormaker.spark.sink_rows import RowError

NOTES_KEPT = 10
_NOTE = ".json"
WHOLE_FILES = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
    "spark.sql.files.maxPartitionNum": str((1 << 31) - 1),
}
"""Each file is one task's, however many cores there are and whatever `spark` of a pipeline says: its rows
keep their order and their transaction.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is noted of a batch."""

    rows: int
    staged: str
    sent: bool
    refused: bool = False
    """Whether the topic has not taken some of it."""


class Outbox:
    """See the module. `job` is what it is known by at the topic's cluster."""

    def __init__(self, spark: SparkSession, files: TableFiles, folder: str, job: str) -> None:
        self._spark = spark
        self._files = files
        self._folder = folder
        self._job = job

    def tidy(self) -> None:
        """Remove what a crash left aside."""
        names = self._names()
        noted = {batch.staged for batch in self._noted().values()}
        for name in names - noted:
            if not name.endswith(_NOTE):
                self._files.discard(f"{self._folder}/{name}")

    def settle(self, options: Mapping[str, str]) -> None:
        """Keep no longer what runs before this one could not send as it was refused, if none of it was sent:
        steps that are put right make other rows of it. Only tasks of such runs, which are over, could have
        sent any after all. Raises BrokerError.
        """
        for number, batch in self._noted().items():
            staged = f"{self._folder}/{batch.staged}"
            if batch.refused and can_be_given_up(
                options, self._job, number, len(self._files.list_files(staged))
            ):
                self._files.delete(f"{self._folder}/{number}{_NOTE}")
                self._files.discard(staged)

    def holds(self, number: int) -> bool:
        """Whether the rows of this batch were kept: else none of it was sent."""
        return self._read(f"{number}{_NOTE}") is not None

    def send(self, number: int, rows: Callable[[], DataFrame], options: Mapping[str, str]) -> int:
        """Have the topic that `options` name hold the `rows` of this batch once; returns how many they are.
        They are not asked for where an attempt before has kept them. Raises RowError for rows that the topic
        cannot take, none of which are kept, and PySparkException where that is found by sending them: see
        `settle`. BrokerError.
        """
        note = f"{number}{_NOTE}"
        batch = self._read(note)
        if batch is None:
            batch = self._stage(rows(), options)
            self._write(note, batch)
        if not batch.sent:
            try:
                self._send(number, f"{self._folder}/{batch.staged}", options)
            except PySparkException as error:
                if f"{RowError.__name__}: " in str(error):
                    self._write(note, replace(batch, refused=True))
                raise
            self._write(note, replace(batch, sent=True, refused=False))
        self._files.discard(f"{self._folder}/{batch.staged}")
        self._files.discard(f"{self._folder}/{number - NOTES_KEPT}{_NOTE}")
        return batch.rows

    def _stage(self, frame: DataFrame, options: Mapping[str, str]) -> _Batch:
        staged = uuid.uuid4().hex
        place = self._files.url(f"{self._folder}/{staged}")
        self._files.make_folder(self._folder)
        frame.write.parquet(place)
        rows = count_sendable(self._spark.read.options(**AS_NAMED).parquet(place), options)
        self._files.sync_all(f"{self._folder}/{staged}")
        return _Batch(rows=rows, staged=staged, sent=False)

    def _names(self) -> set[str]:
        return {name for name in self._files.list_names(self._folder) if not name.startswith(".")}

    def _noted(self) -> dict[int, _Batch]:
        """Batches by their numbers."""
        notes = {name.removesuffix(_NOTE): name for name in self._names() if name.endswith(_NOTE)}
        read = {int(number): self._read(note) for number, note in notes.items() if number.isdecimal()}
        return {number: batch for number, batch in read.items() if batch is not None}

    def _read(self, note: str) -> _Batch | None:
        told = read_note(self._files, f"{self._folder}/{note}")
        return None if told is None else _Batch(**told)

    def _write(self, note: str, batch: _Batch) -> None:
        write_note(self._files, f"{self._folder}/{note}", asdict(batch))

    def _send(self, number: int, staged: str, options: Mapping[str, str]) -> None:
        session = self._spark.newSession()
        session.dataSource.register(MirrorDataSource)
        for name, value in WHOLE_FILES.items():
            session.conf.set(name, value)
        rows = session.read.options(**AS_NAMED).parquet(self._files.url(staged))
        writer = rows.write.format("mirror").options(**options)
        writer.option("txnAppId", self._job).option("txnVersion", str(number)).mode("append").save()
