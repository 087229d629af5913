"""Export: the rows of a table go back to a topic, as JSON, once for every time that the export is due.

    job: mirrormaker.spark.jobs.export:run
    arguments: {table: ./data/tables/flights, format: parquet, cluster: aggregate, topic: flights-again,
                where: "date = '2013-01-01'", key: carrier}

Rows go out in transactions, by way of the checkpoint (`outbox`): an export that was cut off is ended by the
next run, with the rows that it had. A run by hand is the attempt again that was cut off, also after all was
sent, and takes the place of what was due before it. With `delivery: at_least_once` rows go out at once, and
again when a run is tried again. In the checkpoint there are

    GENERATION/export.json   the number of the last export, what it is due for, whether it is done, and the
                             run that was last at it
    GENERATION/export/       its rows until they are sent
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from broker.errors import ConfigurationError
from mirrormaker.pipelines.checkpoint import Checkpoint
from mirrormaker.pipelines.job_run import JobRun
from mirrormaker.pipelines.notes import GARBLED, is_garbled, read_note, write_note
from mirrormaker.pipelines.session import source_options
from mirrormaker.pipelines.sinks.files import WHOLE_TIMES
from mirrormaker.pipelines.sinks.outbox import Outbox
from mirrormaker.pipelines.source import cluster_topics
from mirrormaker.pipelines.table_rows import table_rows
from mirrormaker.spark.sink_options import SinkDelivery
from mirrormaker.topology.document import place_in
from mirrormaker.topology.model import ClusterName, FileFormat, LakeFormat, Topology

_NEEDED = ("table", "cluster", "topic")
_KNOWN = (*_NEEDED, "format", "where", "key", "delivery")
_OPTION = "options."
"""Begins the names of arguments that say how Spark is to read the table: `options.header`."""
_PATHS = frozenset({*(each.value for each in FileFormat), LakeFormat.DELTA.value})
"""Formats whose tables are folders."""
_DELIVERIES = tuple(choice.value for choice in SinkDelivery)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Export:
    """What is noted of the last export."""

    number: int
    due_ms: int | None
    """None by hand."""
    arguments: Mapping[str, str]
    began_ms: int = 0
    run: str = ""
    """The last that was at it."""
    rows: int | None = None
    """None until it is done."""

    def is_for(self, run: JobRun, arguments: Mapping[str, str]) -> bool:
        """Whether it is the one that a run is to make: what was due then, or was made by hand since then. By
        hand the last is meant, unless its run is known to have succeeded.
        """
        if self.arguments != arguments:
            return False
        if run.due_ms is None:
            return self.rows is None or run.folder.has_not_succeeded(self.run)
        if self.due_ms is None:
            return run.due_ms <= self.began_ms <= run.record.started_ms
        return self.due_ms == run.due_ms


def run(spark: SparkSession, topology: Topology, arguments: Mapping[str, str], run: JobRun) -> dict[str, Any]:
    """Export; returns how many rows there were. Raises ConfigurationError."""
    if problems := list(_problems(topology, arguments)):
        raise ConfigurationError(problems)
    if arguments.get("delivery") == SinkDelivery.AT_LEAST_ONCE.value:
        return {"rows": _send_at_once(_rows_of(spark, topology, arguments), _options_of(topology, arguments))}
    checkpoint = Checkpoint(spark, run.pipeline, run.folder)
    exports = _Exports(spark, topology, checkpoint, run)
    last = exports.last()
    is_for_this = last is not None and last.is_for(run, arguments)
    has_rows = last is not None and last.rows is None and exports.has_rows_of(last)
    if last is not None and (is_for_this or has_rows):
        last = exports.end(last)
    if last is None or not is_for_this:
        _check_topic(topology, arguments)
        last = exports.end(exports.begin(last, arguments))
    return {"rows": last.rows}


class _Exports:
    """Those of one pipeline, one after the other."""

    def __init__(self, spark: SparkSession, topology: Topology, checkpoint: Checkpoint, run: JobRun) -> None:
        self._spark = spark
        self._topology = topology
        self._files = checkpoint.files
        self._run = run
        generation = checkpoint.make_generation()
        self._files.make_folder(generation)
        self._note = f"{generation}/export.json"
        job = f"{run.pipeline.name}/export/{generation}"
        self._outbox = Outbox(spark, checkpoint.files, f"{generation}/export", job)
        self._outbox.tidy()

    def last(self) -> _Export | None:
        """The last that has begun. Raises ConfigurationError where that is not known any more: what would be
        sent under its number again counts as sent.
        """
        if is_garbled(self._files, self._note):
            hint = f"move {self._files.root} away to export the table anew, rows of the last time included"
            raise ConfigurationError([f"{self._files.url(self._note)}: {GARBLED}: {hint}"])
        told = read_note(self._files, self._note)
        return None if told is None else _Export(**told)

    def begin(self, last: _Export | None, arguments: Mapping[str, str]) -> _Export:
        """A new one."""
        number = 0 if last is None else last.number + 1
        due_ms, began_ms = self._run.due_ms, self._run.record.started_ms
        return self._keep(_Export(number=number, due_ms=due_ms, arguments=arguments, began_ms=began_ms))

    def has_rows_of(self, export: _Export) -> bool:
        """Whether some may have been sent; else it can be given up, as where its table was not there. Raises
        BrokerError.
        """
        if self._outbox.holds(export.number):
            self._outbox.settle(_options_of(self._topology, export.arguments))
        return self._outbox.holds(export.number)

    def end(self, export: _Export) -> _Export:
        """Have its topic hold it once; one that is done is this run's now."""
        options = _options_of(self._topology, export.arguments)
        rows = self._outbox.send(
            export.number, lambda: _rows_of(self._spark, self._topology, export.arguments), options
        )
        return self._keep(replace(export, rows=rows))

    def _keep(self, export: _Export) -> _Export:
        export = replace(export, run=self._run.record.run)
        write_note(self._files, self._note, asdict(export))
        return export


def _problems(topology: Topology, arguments: Mapping[str, str]) -> list[str]:
    strange = [name for name in arguments if name not in _KNOWN and not name.startswith(_OPTION)]
    problems = [f"arguments.{name}: unknown" for name in sorted(strange)]
    problems += [f"arguments: lack {name!r}" for name in _NEEDED if name not in arguments]
    if "cluster" in arguments and arguments["cluster"] not in topology.clusters:
        problems.append(f"arguments.cluster: there is no cluster {arguments['cluster']!r}")
    if arguments.get("delivery", _DELIVERIES[0]) not in _DELIVERIES:
        problems.append(f"arguments.delivery: is none of {', '.join(_DELIVERIES)}")
    return problems


def _check_topic(topology: Topology, arguments: Mapping[str, str]) -> None:
    """Rows that are kept go nowhere else any more. Raises ConfigurationError."""
    name, topic = arguments["cluster"], arguments["topic"]
    if topic not in cluster_topics(topology.clusters[ClusterName(name)]):
        raise ConfigurationError([f"arguments.topic: cluster {name!r} has no topic {topic!r}"])


def _rows_of(spark: SparkSession, topology: Topology, arguments: Mapping[str, str]) -> DataFrame:
    """Records, made of the table as it is now."""
    form = arguments.get("format", FileFormat.PARQUET.value)
    rows = table_rows(spark, form, place_of(topology, form, arguments["table"]), _reading_options(arguments))
    rows = rows.where(arguments["where"]) if "where" in arguments else rows
    columns = [f.to_json(f.struct(*rows.columns), WHOLE_TIMES).alias("value")]
    if "key" in arguments:
        columns.append(f.col(arguments["key"]).cast("string").alias("key"))
    return rows.select(*columns)


def place_of(topology: Topology, form: str, table: str) -> str:
    """A path is below the folder of the file; tables of other formats have names."""
    is_path = form in _PATHS and ":" not in table.partition("/")[0]
    return place_in(topology.folder, table) if is_path else table


def _reading_options(arguments: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(_OPTION): value for name, value in arguments.items() if name.startswith(_OPTION)
    }


def _options_of(topology: Topology, arguments: Mapping[str, str]) -> dict[str, str]:
    delivery = arguments.get("delivery", SinkDelivery.EXACTLY_ONCE.value)
    cluster = topology.clusters[ClusterName(arguments["cluster"])]
    return {**source_options(cluster), "topic": arguments["topic"], "delivery": delivery}


def _send_at_once(rows: DataFrame, options: Mapping[str, str]) -> int:
    exported = rows.persist()
    try:
        exported.write.format("mirror").options(**options).mode("append").save()
        return exported.count()
    finally:
        exported.unpersist()
