"""Pipelines: Spark on the topics of one cluster, by a schedule or without an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mirrormaker.topology.model.names import ClusterName, PipelineName
from mirrormaker.topology.model.selection import Start, StartPosition
from mirrormaker.topology.model.steps import CallFunction

RECORDS = "records"
"""What steps and sinks call that which comes from the topics."""


class RecordFormat(Enum):
    """What the values of records are: RAW bytes, JSON, CSV or AVRO."""

    RAW = "raw"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"


class TableFormat(Enum):
    """Formats of files and tables that a step may look things up in."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    ORC = "orc"


class FileFormat(Enum):
    """Formats of the files that a sink writes."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"


class LakeFormat(Enum):
    """Formats of tables that have a log of their own, where their jars are there."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class Completeness(Enum):
    """What a run asks of the audit: NOTHING, a MARK of what is missing, or that its window is COMPLETE."""

    NOTHING = "nothing"
    MARK = "mark"
    COMPLETE = "complete"


class AlertOccasion(Enum):
    """What an alert is for: a pipeline has FAILED, loads what is INCOMPLETE, has RECOVERED."""

    FAILED = "failed"
    INCOMPLETE = "incomplete"
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTopics:
    """Topics by regular expressions that match the whole name."""

    include: tuple[str, ...]
    """Regular expressions: a topic is read when one matches its whole name. Internal topics never are."""
    exclude: tuple[str, ...] = ()
    """Regular expressions of topics to leave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One step of a pipeline: SQL, or a function that gets and returns data frames."""

    name: str
    """What later steps and sinks call its result: letters, digits and `_`."""
    inputs: tuple[str, ...] = ()
    """The steps, or `records`, that it reads; left out, the step before it."""
    sql: str | None = None
    """A query, in Spark's SQL; its inputs and the `tables` are there under their names."""
    function: CallFunction | None = None
    """Instead: a function of a Python package, called with the inputs in their order, and with `tables`, a
    mapping, where it has a parameter of that name; it returns a data frame.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Files that stand still, for joins."""

    format: TableFormat
    """What the files are."""
    path: str
    """A folder or a file: a URL, or a path below the file's folder."""
    schema: str | None = None
    """Columns as Spark's DDL says them; left out, as the files tell."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink:
    """Files in a folder, in subfolders by `partition_by`."""

    format: FileFormat
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """A table with a log of its own: Delta by its path, Iceberg by its name in a catalog."""

    format: LakeFormat
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink:
    """A table of a database. What a load writes and the note that it did are one transaction there."""

    url: str
    """Where the database is: `jdbc:...`."""
    table: str
    """Its table; made when it is not there."""
    driver: str | None = None
    """Class of the driver; its jar comes by `spark.jars` in `spark`."""
    user: str | None = None
    """Who logs in."""
    password: str | None = None
    """Only by reference: `env:NAME` or `file:/PATH`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """A topic: columns `value`, and `key`, `partition`, `headers` where they are there."""

    topic: str
    """Name of the topic, which must be there."""
    cluster: ClusterName | None = None
    """The cluster of the topic; left out, the one that the pipeline reads."""


SinkTarget = FileSink | LakeSink | JdbcSink | TopicSink


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where the rows of one step go."""

    target: SinkTarget
    source: str | None = None
    """The step, or `records`, whose rows it takes; left out, the last step."""
    partition_by: tuple[str, ...] | None = None
    """Columns that subfolders are named by; left out, those of `topic`, `date`, `hour` that are there.
    Windows that can be loaded anew need `date`.
    """
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """When a pipeline runs: one of `cron`, `every` and `continuous`."""

    cron: str | None = None
    """A cron expression of five fields: `5 * * * *` is five minutes past every hour."""
    zone: str = "UTC"
    """The time zone that `cron` is meant in."""
    every_ms: int | None = None
    """Instead: again and again, this long after the start before."""
    continuous_ms: int | None = None
    """Instead: it runs without an end, and loads what is new so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkSpec:
    """How late rows may be: steps that gather rows over time need it. Later ones are counted and left out of
    such steps.
    """

    delay_ms: int
    """How long after the latest `time` seen a row may still come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """What follows a run that failed."""

    attempts: int = 3
    """How often a run is tried in all before the pipeline counts as failed, until it is due again."""
    backoff_ms: int = 30_000
    """The wait before the second attempt; every further one doubles."""
    backoff_max_ms: int = 600_000
    """The longest wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSpec:
    """Whom the daemon tells; an event and a metric there are always."""

    command: tuple[str, ...] = ()
    """A program and its arguments; it reads what happened from standard input, as JSON."""
    webhook: str | None = None
    """A URL to which the same is posted."""
    on: tuple[AlertOccasion, ...] = tuple(AlertOccasion)
    """What for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """Spark on the topics of one cluster: either topics, steps and sinks, or a `job`."""

    name: PipelineName
    """Name in status, logs and on the command line."""
    cluster: ClusterName | None = None
    """The cluster that it reads, by its name here; only a `job` can do without."""
    owner: str | None = None
    """Whom to ask about it; alerts say so."""
    enabled: bool = True
    """Whether the daemon runs it; on the command line it always can be."""
    topics: PipelineTopics | None = None
    """Which topics it reads."""
    start: StartPosition = Start.EARLIEST
    """Where its first run starts: `earliest`, `latest`, a time, or offsets (others at the earliest)."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the data source `mirror` beside those that other keys stand for, such as `failOnDataLoss`,
    `minPartitions`, `includeHeaders`; `kafka.isolation.level` is `read_committed` unless they say otherwise.
    """
    format: RecordFormat = RecordFormat.RAW
    """What values are; `value` has the columns of `schema` then, but for `raw`."""
    schema: str | None = None
    """Columns of `value`: Spark's DDL, for `avro` the schema in JSON; `file:PATH` takes it from a file. Left
    out for `json`, it is inferred from the first records, and kept.
    """
    format_options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader of that format; `framing: confluent` for Avro behind the id of its schema."""
    time: str | None = None
    """An SQL expression over `records` for the time of a row, which `date` and `hour` (UTC) are made of; left
    out, the record's timestamp.
    """
    watermark: WatermarkSpec | None = None
    """How late rows may be, where steps gather rows over time."""
    tables: Mapping[str, TableSpec] = field(default_factory=dict)
    """What steps may join, by name."""
    steps: tuple[StepSpec, ...] = ()
    """What becomes of the records."""
    sinks: tuple[SinkSpec, ...] = ()
    """Where the results go."""
    quarantine: str | None = None
    """Folder for records whose value is not of the format, with topic, partition, offset and reason; left
    out, `pipelines/NAME/quarantine` in the `data_dir`.
    """
    job: CallFunction | None = None
    """Instead of topics, steps and sinks: a function that is called with a Spark session and this pipeline's
    `arguments`; `mirrormaker.spark.jobs` ships some.
    """
    arguments: Mapping[str, str] = field(default_factory=dict)
    """What the job is told."""
    schedule: ScheduleSpec | None = None
    """When the daemon runs it; left out, never by itself."""
    batch_records: int = 5_000_000
    """Records of one load; more than that are loaded one after the other."""
    require: Completeness = Completeness.NOTHING
    """Whether a run waits until the audit says that everything up to it has arrived (`complete`), or says
    what is missing in its record (`mark`).
    """
    patience_ms: int = 3_600_000
    """How long a run waits for that; then it fails."""
    master: str = "local[*]"
    """Spark's master: `local[*]`, `spark://HOST:PORT`, `yarn`, `k8s://https://...`."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    checkpoint: str | None = None
    """Where Spark notes what has been loaded, and an export what it has sent: a folder that all its machines
    reach; left out, `pipelines/NAME/checkpoint` in the `data_dir`.
    """
    retry: RetrySpec = field(default_factory=RetrySpec)
    """What follows a run that failed."""
    alert: AlertSpec = field(default_factory=AlertSpec)
    """Whom to tell."""
