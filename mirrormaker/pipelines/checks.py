"""What only Spark and the clusters can tell of a pipeline, before anything is written: all of it at once.

Steps are analysed on a stream that nobody starts: Spark parses SQL, finds tables and columns, and says what
it cannot do. Findings have the paths of the topology file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from broker.errors import BrokerError, ConfigurationError
from mirrormaker.pipelines.beginning import find_beginning
from mirrormaker.pipelines.checkpoint import Checkpoint
from mirrormaker.pipelines.decoding import decode, infer_schema, parse_schema, split
from mirrormaker.pipelines.format_options import option_problems
from mirrormaker.pipelines.run_log import PipelineFolder
from mirrormaker.pipelines.sinks import database, files, lake
from mirrormaker.pipelines.sinks.jdbc_connection import is_portable
from mirrormaker.pipelines.sinks.sink import partition_columns
from mirrormaker.pipelines.sinks.topic import RECORD_COLUMNS, write_options
from mirrormaker.pipelines.source import (
    Offsets,
    cluster_topics,
    find_topics,
    first_records,
    start_options,
    stream,
    stream_options,
)
from mirrormaker.pipelines.table import name_fold, probe
from mirrormaker.pipelines.transforming import (
    apply_step,
    gathers_rows,
    is_of_records,
    is_query,
    load_tables,
)
from mirrormaker.spark.options import parse_options
from mirrormaker.spark.sink_options import parse_sink_options
from mirrormaker.spark.sink_rows import check_columns
from mirrormaker.steps.outside import find_function
from mirrormaker.steps.trial import find_missing
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import (
    RECORDS,
    CallFunction,
    FileFormat,
    FileSink,
    JdbcSink,
    LakeSink,
    PipelineSpec,
    RecordFormat,
    SinkSpec,
    TopicSink,
    Topology,
)
from mirrormaker.topology.step_order import inputs_of, order_steps, source_of, used_names

_SOURCE_OPTIONS = "source_options"
_HEADERS = ("includeheaders", "true")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A pipeline that can run: how values are decoded, and where it begins."""

    schema: StructType | None
    beginning: Offsets
    """Where to begin in every partition while the checkpoint does not say it."""


class Preparation:
    """Looks at one pipeline; `findings` is everything that is wrong."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        pipeline: PipelineSpec,
        data: PipelineFolder,
        missing: Mapping[CallFunction, str],
    ) -> None:
        """`missing`: functions that are known not to be there, with the reasons."""
        self.findings: list[Finding] = []
        self._missing = missing
        self._spark = spark
        self._topology = topology
        self._pipeline = pipeline
        self._folder = data
        self._path = f"pipelines[{topology.pipelines.index(pipeline)}]"

    def prepare(self) -> Prepared | None:
        """Look at all of it. None when something is wrong."""
        self._check_options()
        self._reach_places()
        topics = self._find_topics()
        beginning = self._find_beginning(topics)
        schema = self._find_schema(topics)
        if schema is not False:
            self._analyse(schema)
        for number, sink in enumerate(self._pipeline.sinks):
            self._reach_sink(f"sinks[{number}]", sink)
        if self.findings or isinstance(schema, bool) or beginning is None:
            return None
        return Prepared(schema=schema, beginning=beginning)

    def _report(self, key: str, message: object) -> None:
        self.findings.append(Finding(path=f"{self._path}.{key}", message=brief(message)))

    def _check_options(self) -> None:
        pipeline = self._pipeline
        said = [("format_options", pipeline.format.value, pipeline.format_options)]
        for name, table in pipeline.tables.items():
            said.append((f"tables.{name}.options", table.format.value, table.options))
        for number, sink in enumerate(pipeline.sinks):
            if isinstance(sink.target, FileSink):
                said.append((f"sinks[{number}].options", sink.target.format.value, sink.options))
        for path, form, options in said:
            for name, problem in option_problems(self._spark, form, options):
                self._report(f"{path}.{name}", problem)
        if pipeline.cluster is not None:
            options = stream_options(self._topology.clusters[pipeline.cluster], pipeline)
            try:
                parse_options(options | start_options(pipeline), streaming=True)
            except ConfigurationError as error:
                for problem in error.problems:
                    self._report(_SOURCE_OPTIONS, problem)

    def _as_can_be_read(self) -> PipelineSpec:
        """With those options of the source alone that decide on its columns, where any of them is wrong."""
        pipeline = self._pipeline
        if not any(each.path.endswith(f".{_SOURCE_OPTIONS}") for each in self.findings):
            return pipeline
        said = pipeline.source_options.items()
        kept = {name: "true" for name, value in said if (name.lower(), value.lower()) == _HEADERS}
        return replace(pipeline, source_options=kept)

    def _reach_places(self) -> None:
        """Those that the pipeline says, of what a run writes beside its sinks."""
        pipeline = self._pipeline
        if pipeline.quarantine is not None and (problem := probe(self._spark, pipeline.quarantine)):
            self._report("quarantine", f"cannot be written: {problem}")
        checkpoint = Checkpoint(self._spark, pipeline, self._folder)
        if pipeline.checkpoint is not None and (problem := checkpoint.probe()):
            self._report("checkpoint", f"cannot be written: {problem}")

    def _find_topics(self) -> list[str]:
        assert self._pipeline.cluster is not None
        try:
            return find_topics(self._topology.clusters[self._pipeline.cluster], self._pipeline)
        except ConfigurationError as error:
            self._report("topics", error)
        except BrokerError as error:
            self._report("cluster", error)
        return []

    def _find_beginning(self, topics: list[str]) -> Offsets | None:
        checkpoint = Checkpoint(self._spark, self._pipeline, self._folder)
        for key, problem in checkpoint.problems(self._pipeline):
            self._report(key, problem)
        if not topics or self._as_can_be_read() is not self._pipeline:
            return None
        assert self._pipeline.cluster is not None
        cluster = self._topology.clusters[self._pipeline.cluster]
        try:
            noted, has_begun = checkpoint.beginning(), checkpoint.has_begun()
            return find_beginning(cluster, self._pipeline, noted, has_begun=has_begun)
        except ConfigurationError as error:
            for problem in error.problems:
                self._report("start", problem)
        except BrokerError as error:
            self._report("cluster", error)
        return None

    def _find_schema(self, topics: list[str]) -> StructType | bool | None:
        """False when there is none though one is needed."""
        try:
            schema = parse_schema(self._pipeline, self._folder.kept_schema())
            if schema is None and self._pipeline.format is RecordFormat.JSON:
                if not topics:
                    return False
                assert self._pipeline.cluster is not None
                cluster = self._topology.clusters[self._pipeline.cluster]
                records = first_records(self._spark, cluster, topics)
                schema = infer_schema(self._spark, records, self._pipeline.format_options)
        except (PySparkException, ConfigurationError) as error:
            self._report("schema", error)
            return False
        return schema

    def _analyse(self, schema: StructType | bool | None) -> None:
        assert not isinstance(schema, bool)
        pipeline = self._pipeline
        assert pipeline.cluster is not None
        try:
            cluster = self._topology.clusters[pipeline.cluster]
            records = stream(self._spark, cluster, self._as_can_be_read())
            rows = split(decode(records, pipeline, schema)).rows
        except PySparkException as error:
            self._report("time" if pipeline.time is not None else "schema", error)
            return
        if pipeline.watermark is not None:
            rows = rows.withWatermark("time", f"{pipeline.watermark.delay_ms} milliseconds")
        frames = self._analyse_steps(rows)
        for number, sink in enumerate(pipeline.sinks):
            frame = frames.get(source_of(sink, pipeline.steps))
            if frame is not None and not is_of_records(frame):
                self._report(f"sinks[{number}]", "has rows of no records: each load would write them again")
            elif frame is not None:
                problems = list(sink_problems(sink, frame)) or self._kept_from(number, sink, frame)
                for problem in problems:
                    self._report(f"sinks[{number}]", problem)

    def _analyse_steps(self, rows: DataFrame) -> dict[str, DataFrame]:
        pipeline = self._pipeline
        frames = {RECORDS: rows}
        tables: dict[str, DataFrame] = {}
        for name, spec in pipeline.tables.items():
            try:
                tables |= load_tables(self._spark, {name: spec})
            except PySparkException as error:
                self._report(f"tables.{name}", error)
        used, reads = used_names(pipeline), inputs_of(pipeline.steps)
        for step in order_steps(pipeline.steps):
            inputs = {name: frames[name] for name in reads[step.name] if name in frames}
            if step.name not in used or len(inputs) < len(set(reads[step.name])):
                continue
            path = f"steps[{pipeline.steps.index(step)}].{'sql' if step.sql is not None else 'function'}"
            if step.function is not None and step.function in self._missing:
                self._report(path, self._missing[step.function])
                continue
            try:
                if step.sql is not None and not is_query(self._spark, step.sql):
                    self._report(path, "is a command, and no query on records")
                    continue
                frames[step.name] = apply_step(step, inputs, tables)
                if pipeline.watermark is None and gathers_rows(frames[step.name]):
                    message = "gathers rows, which needs 'watermark': a load is not all there is of a time"
                    self._report(path, message)
            except (PySparkException, Py4JError, BrokerError, OSError) as error:
                self._report(path, error)
        return frames

    def _kept_from(self, number: int, sink: SinkSpec, frame: DataFrame) -> list[str]:
        """What a sink that is there has against these rows."""
        match sink.target:
            case FileSink():
                return files.reach_problems(self._spark, sink, frame)
            case JdbcSink():
                problem = database.reach_problem(self._spark, sink.target, frame)
            case LakeSink():
                problem = lake.reach_problem(self._spark, sink.target, frame)
            case _:
                return []
        return [] if problem is None else [problem]

    def _reach_sink(self, path: str, sink: SinkSpec) -> None:
        if isinstance(sink.target, FileSink) and (problem := probe(self._spark, sink.target.path)):
            self._report(path, f"cannot be written: {problem}")
        if isinstance(sink.target, TopicSink):
            self._reach_topic(path, sink.target, write_options(self._topology, self._pipeline, sink))

    def _reach_topic(self, path: str, target: TopicSink, options: dict[str, str]) -> None:
        name = target.cluster or self._pipeline.cluster
        assert name is not None
        try:
            parse_sink_options(options)
            if target.topic not in cluster_topics(self._topology.clusters[name]):
                self._report(path, f"cluster {name!r} has no topic {target.topic!r}")
        except ConfigurationError as error:
            for problem in error.problems:
                self._report(path, problem)
        except BrokerError as error:
            self._report(path, error)


def sink_problems(sink: SinkSpec, frame: DataFrame) -> Iterator[str]:
    """What keeps the rows of `frame` from being written."""
    columns = frame.columns
    names = list(map(name_fold(frame.sparkSession), columns))
    doubled = {name for name, same in zip(columns, names, strict=True) if names.count(same) > 1}
    if doubled:
        yield f"columns stand there twice: {', '.join(sorted(doubled))}"
    for name in sink.partition_by or ():
        if name not in columns:
            yield f"there is no column {name!r} to name subfolders by: there are {', '.join(columns)}"
        elif name.startswith(("_", ".")):
            yield f"{name!r} cannot name subfolders: readers pass over names that begin so"
    match sink.target:
        case TopicSink():
            yield from _topic_problems(frame)
        case FileSink() if not set(columns) - set(partition_columns(sink, frame)):
            yield "there are no columns but those that subfolders are named by"
        case FileSink(format=FileFormat.CSV) if (only := _empty_line(sink, frame)) is not None:
            yield (
                f"rows whose only column {only!r} is null would be lost, as Spark writes no empty lines:"
                " say what stands for null in options, such as {nullValue: 'null'}"
            )
        case FileSink(format=form):
            yield from _unwritable(sink, form, frame)


def _unwritable(sink: SinkSpec, form: FileFormat, frame: DataFrame) -> Iterator[str]:
    """Columns of types that files or names of subfolders cannot have: Spark tells while it writes."""
    jvm = frame.sparkSession._jvm
    assert jvm is not None
    writer = getattr(jvm, _WRITERS[form])()
    folders = partition_columns(sink, frame)
    for field, kind in zip(frame.schema, frame._jdf.schema().fields(), strict=True):
        said = field.dataType.simpleString()
        if field.name in folders:
            if not is_portable(field.dataType):
                yield f"column {field.name!r} is {said}, which cannot name subfolders"
        elif not writer.supportDataType(kind.dataType()):
            yield f"column {field.name!r} is {said}, which files of {form.value} cannot have"


_FILES = "org.apache.spark.sql.execution.datasources"
_WRITERS = {
    FileFormat.PARQUET: f"{_FILES}.parquet.ParquetFileFormat",
    FileFormat.JSON: f"{_FILES}.json.JsonFileFormat",
    FileFormat.CSV: f"{_FILES}.csv.CSVFileFormat",
}


def _empty_line(sink: SinkSpec, frame: DataFrame) -> str | None:
    """The only column that lines of text have, where it may be null and null is nothing."""
    inside = [each for each in frame.schema if each.name not in partition_columns(sink, frame)]
    said = {name.lower(): value for name, value in sink.options.items()}
    return inside[0].name if len(inside) == 1 and inside[0].nullable and not said.get("nullvalue") else None


def _topic_problems(frame: DataFrame) -> Iterator[str]:
    if "value" in frame.columns and dict(frame.dtypes)["value"] not in ("string", "binary"):
        yield "the column 'value' must be text or bytes: to_json makes text of columns"
        return
    try:
        check_columns(frame.select(*(name for name in frame.columns if name in RECORD_COLUMNS)).schema, "")
    except ConfigurationError as error:
        yield from error.problems


def missing_functions(pipeline: PipelineSpec) -> dict[CallFunction, str]:
    """Functions of a pipeline that cannot be had, each with the reason."""
    named = (pipeline.job, *(step.function for step in pipeline.steps))
    return find_missing(each for each in named if each is not None)


def check_job(pipeline: PipelineSpec, path: str) -> list[Finding]:
    """What is wrong with a job, before it runs."""
    assert pipeline.job is not None
    try:
        find_function(pipeline.job)
    except ConfigurationError as error:
        return [Finding(path=f"{path}.job", message=str(error))]
    return []


def brief(message: object) -> str:
    """The part of a message that people want: its first line, without the plan that Spark puts behind."""
    text = str(message).strip()
    return text.split("\n\nJVM stacktrace")[0].split(";\n")[0].split("\n")[0]
