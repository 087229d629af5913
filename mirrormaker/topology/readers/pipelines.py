"""`pipelines` of a topology file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cronsim import CronSim, CronSimError

from broker.errors import ConfigurationError
from mirrormaker.topology.document import place_in
from mirrormaker.topology.jdbc_url import holds_password
from mirrormaker.topology.kinds.collections import ListOf, MapOf, Several
from mirrormaker.topology.kinds.kind import Checked, Kind, UnreadableError
from mirrormaker.topology.kinds.numbers import Integer
from mirrormaker.topology.kinds.records import Given, Key, Record
from mirrormaker.topology.kinds.scalars import Choice, Flag, Reference, Setting, Text
from mirrormaker.topology.kinds.times import Duration
from mirrormaker.topology.kinds.unions import Alternative, Either, OneKey
from mirrormaker.topology.model import (
    RECORDS,
    AlertOccasion,
    AlertSpec,
    Completeness,
    FileFormat,
    FileSink,
    JdbcSink,
    LakeFormat,
    LakeSink,
    PipelineSpec,
    PipelineTopics,
    RecordFormat,
    RetrySpec,
    ScheduleSpec,
    SinkSpec,
    StepSpec,
    TableFormat,
    TableSpec,
    TopicSink,
    WatermarkSpec,
)
from mirrormaker.topology.readers.routes import START
from mirrormaker.topology.readers.steps import FUNCTION, PATTERNS, SOME_PATTERNS, make_function
from mirrormaker.topology.readers.windows import ZONE

T = TypeVar("T")
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_ATTEMPTS_MAX = 100
_BATCH_RECORDS_MAX = 1_000_000_000
_FILE = "file:"
_NAME = Text("name", empty=False)
_OPTIONS = MapOf("option", Setting())
_SETTINGS = MapOf("setting", Setting())


def pipelines(folder: Path) -> ListOf[PipelineSpec]:
    """The section; relative paths in it are below `folder`."""
    return ListOf(pipeline(folder), keeps_numbers=True)


def pipeline(folder: Path) -> Record[PipelineSpec]:
    """One pipeline."""
    return Record(
        PipelineSpec,
        {
            "name": _NAME,
            "owner": Text(empty=False),
            "enabled": Flag(),
            "cluster": Text("name of a cluster"),
            "topics": Record(PipelineTopics, {"include": SOME_PATTERNS, "exclude": PATTERNS}),
            "start": START,
            "source_options": _OPTIONS,
            "format": Choice(RecordFormat),
            "schema": _schema(folder),
            "format_options": _OPTIONS,
            "time": Text("SQL expression", empty=False),
            "watermark": Record(
                WatermarkSpec, {"delay": Key(Duration(0, 366 * _DAY_MS, bare=False), "delay_ms")}
            ),
            "tables": MapOf("name", table(folder)),
            "steps": ListOf(STEP, keeps_numbers=True),
            "sinks": ListOf(sink(folder), keeps_numbers=True),
            "quarantine": location(folder),
            "job": Key(_Function(), "job"),
            "arguments": MapOf("argument", Setting()),
            "schedule": SCHEDULE,
            "batch_records": Integer(1, _BATCH_RECORDS_MAX),
            "require": Choice(Completeness),
            "patience": Key(Duration(1000, 30 * _DAY_MS, bare=False), "patience_ms"),
            "master": Checked(Text(empty=False), _check_master),
            "spark": _SETTINGS,
            "checkpoint": location(folder),
            "retry": RETRY,
            "alert": ALERT,
        },
    )


def location(folder: Path) -> Kind[str]:
    """A folder or file by URL, or by a path, which is below `folder` unless it is absolute."""

    def check(path: str) -> str:
        if "\0" in path or "\n" in path:
            raise UnreadableError(f"{path!r} is not a path")
        try:
            return place_in(folder, path)
        except ConfigurationError as error:
            raise UnreadableError(str(error)) from error

    return Checked(Text("path or URL", empty=False), check)


def table(folder: Path) -> Record[TableSpec]:
    """Files to look things up in."""
    return Record(
        TableSpec,
        {
            "format": Choice(TableFormat),
            "path": location(folder),
            "schema": Text("columns", empty=False),
            "options": _OPTIONS,
        },
    )


def sink(folder: Path) -> OneKey[SinkSpec]:
    """One sink."""
    path = location(folder)

    def files(kind: FileFormat) -> Alternative:
        return _target(path, FileSink, lambda where: FileSink(format=kind, path=where))

    return OneKey(
        {
            **{kind.value: files(kind) for kind in FileFormat},
            "delta": _target(path, LakeSink, lambda where: LakeSink(format=LakeFormat.DELTA, table=where)),
            "iceberg": _target(
                Text("name of a table", empty=False),
                LakeSink,
                lambda name: LakeSink(format=LakeFormat.ICEBERG, table=name),
            ),
            "jdbc": _target(JDBC, JdbcSink, lambda sink: sink),
            "topic": _target(Either(_NAME, TOPIC_SINK), TopicSink, _topic_sink),
        },
        cls=SinkSpec,
        beside={
            "from": Key(Text("name of a step"), "source"),
            "partition_by": ListOf(Text("columns", empty=False)),
            "options": _OPTIONS,
        },
        stand_in=SinkSpec(target=FileSink(format=FileFormat.PARQUET, path="")),
    )


def _target(kind: Kind[Any], documented: type, make: Callable[[Any], Any]) -> Alternative:
    def sink(read: Any, **beside: Any) -> SinkSpec:
        return SinkSpec(target=make(read), **beside)

    return Alternative(kind, sink, documented)


def _topic_sink(read: str | TopicSink) -> TopicSink:
    return TopicSink(topic=read) if isinstance(read, str) else read


class _Function(Kind[Any]):
    """`package.module:function`."""

    @property
    def words(self) -> str:
        return FUNCTION.words

    @property
    def stand_in(self) -> None:
        return None

    def read(self, place: Any) -> Any:
        return make_function(FUNCTION.read(place))

    def schema(self) -> dict[str, Any]:
        return FUNCTION.schema()


def _schema(folder: Path) -> Kind[str]:
    def check(schema: str) -> str:
        if not schema.startswith(_FILE):
            return schema
        path = folder / schema.removeprefix(_FILE)
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: cannot be read: {error}") from error

    return Checked(Text("columns, or `file:PATH`", empty=False), check)


def _check_master(master: str) -> str:
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise UnreadableError(f"{master!r} is no master: local[*], spark://HOST:PORT, yarn or k8s://URL")
    return master


def _check_cron(expression: str) -> str:
    if len(expression.split()) != 5:
        raise UnreadableError(f"{expression!r} has {len(expression.split())} fields, a cron expression has 5")
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise UnreadableError(f"{expression!r} is no cron expression: {error}") from error
    except StopIteration:
        raise UnreadableError(f"{expression!r} never comes") from None
    return expression


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UnreadableError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UnreadableError(f"{url!r} is no URL of HTTP")
    return url


def _check_jdbc(url: str) -> str:
    """Complaints do not show the URL, in which there may be a password."""
    if not url.startswith("jdbc:"):
        raise UnreadableError("no URL of a database: it starts with 'jdbc:'")
    if holds_password(url):
        raise UnreadableError(
            "holds a password: write 'user', and 'password: env:NAME' or 'password: file:/PATH', beside it"
        )
    return url


def _check_secret(reference: str) -> str:
    if not reference.startswith(("env:", "file:/")):
        raise UnreadableError("no reference to a secret: write env:NAME or file:/PATH")
    return reference


def _check_step(step: StepSpec, given: Given) -> StepSpec:
    if step.sql is None and step.function is None and not _is_reported(given, "sql", "function"):
        given.place.report("says neither 'sql' nor 'function'")
    if step.sql is not None and step.function is not None:
        given.place.report("says both 'sql' and 'function': one is enough")
    return step


def _check_schedule(schedule: ScheduleSpec, given: Given) -> ScheduleSpec:
    said = [key for key in ("cron", "every_ms", "continuous_ms") if key in given.values]
    names = " and ".join(key.removesuffix("_ms") for key in said)
    if len(said) > 1:
        given.place.report(f"needs one of cron, every, continuous: not {names}")
    elif not said and not _is_reported(given, "cron", "every", "continuous"):
        given.place.report("needs one of cron, every, continuous: says none of them")
    if "zone" in given.values and schedule.cron is None:
        given.place.problems.report(given.place.path_of("zone"), "only 'cron' has a time zone")
    return schedule


def _check_alert(alert: AlertSpec, given: Given) -> AlertSpec:
    if not alert.command and alert.webhook is None and not _is_reported(given, "command", "webhook"):
        given.place.report("says neither 'command' nor 'webhook'")
    return alert


def _is_reported(given: Given, *keys: str) -> bool:
    return any(given.place.problems.covers(given.place.path_of(key)) for key in keys)


STEP = Record(
    StepSpec,
    {
        "name": _NAME,
        "from": Key(Several(Text(f"name of a step, or `{RECORDS}`", empty=False)), "inputs"),
        "sql": Text("query", empty=False),
        "function": _Function(),
    },
    check=_check_step,
)
JDBC = Record(
    JdbcSink,
    {
        "url": Checked(Text("`jdbc:...`"), _check_jdbc),
        "table": _NAME,
        "driver": Text("name of a class", empty=False),
        "user": Text(),
        "password": Checked(Reference(), _check_secret),
    },
)
TOPIC_SINK = Record(TopicSink, {"topic": _NAME, "cluster": Text("name of a cluster")})
SCHEDULE = Record(
    ScheduleSpec,
    {
        "cron": Checked(Text("cron expression"), _check_cron),
        "zone": ZONE,
        "every": Key(Duration(1000, 366 * _DAY_MS, bare=False), "every_ms"),
        "continuous": Key(Duration(100, _DAY_MS, bare=False), "continuous_ms"),
    },
    check=_check_schedule,
)
RETRY = Record(
    RetrySpec,
    {
        "attempts": Integer(1, _ATTEMPTS_MAX),
        "backoff": Key(Duration(0, _DAY_MS, bare=False), "backoff_ms"),
        "backoff_max": Key(Duration(0, _DAY_MS, bare=False), "backoff_max_ms"),
    },
)
ALERT = Record(
    AlertSpec,
    {
        "command": ListOf(Text("words"), empty=False),
        "webhook": Checked(Text("URL"), _check_url),
        "on": ListOf(Choice(AlertOccasion)),
    },
    check=_check_alert,
)
