"""Checks of pipelines that need no Spark: names, references, circles of steps, settings that do not go
together. What only Spark can tell, above all of SQL, `pipelines/checks` finds before a run. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from mirrormaker.topology.document import suggestion
from mirrormaker.topology.findings import Finding
from mirrormaker.topology.jdbc_url import SECRET_NAMES
from mirrormaker.topology.model import (
    RECORDS,
    Completeness,
    FileSink,
    JdbcSink,
    LakeSink,
    PipelineSpec,
    RecordFormat,
    SinkSpec,
    TopicSink,
    Topology,
)
from mirrormaker.topology.naming import is_legal_topic, name_problem
from mirrormaker.topology.pipeline_source import check_reading
from mirrormaker.topology.step_order import StepCircleError, inputs_of, order_steps, source_of, used_names

PIPELINE_NAME_SIZE_MAX = 80
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TABLE = re.compile(r"([A-Za-z]\w*\.){0,2}[A-Za-z]\w*", re.ASCII)
"""A table that needs no quotes: those beside it are called after it."""
_LOADING_KEYS = (
    *("topics", "steps", "sinks", "tables", "watermark", "time", "schema", "quarantine"),
    *("source_options", "format_options"),
)
"""What a pipeline says that loads topics, and one with a `job` does not."""
_OWN_SETTINGS = frozenset({"spark.master", "spark.app.name"})


def check_pipelines(topology: Topology) -> Iterator[Finding]:
    """Every problem of the pipelines of `topology`."""
    first: dict[str, int] = {}
    folders: dict[str, str] = {}
    for index, pipeline in enumerate(topology.pipelines):
        path = f"pipelines[{index}]"
        yield from _check_pipeline(path, pipeline, topology)
        known = first.setdefault(pipeline.name, index)
        if known != index:
            message = f"pipelines[{known}] is called {pipeline.name!r} too: give this one another name"
            yield Finding(path=f"{path}.name", message=message)
        yield from _check_folders(path, pipeline, folders)
    yield from _check_turns(topology)


def _check_turns(topology: Topology) -> Iterator[Finding]:
    """A continuous pipeline gives its turn back to nobody: others would wait for ever."""
    kept = [each for each in topology.pipelines if each.enabled and each.schedule is not None]
    continuous = sum(1 for each in kept if _is_continuous(each))
    needed = continuous + (continuous < len(kept))
    if needed > topology.pipelines_at_once:
        message = (
            f"{topology.pipelines_at_once} are too few: {continuous} continuous pipelines keep a turn each"
            f"{', the others need one' if needed > continuous else ''}, {needed} in all"
        )
        yield Finding(path="pipelines_at_once", message=message)


def _check_pipeline(path: str, pipeline: PipelineSpec, topology: Topology) -> Iterator[Finding]:
    if pipeline.name and (problem := name_problem(pipeline.name, PIPELINE_NAME_SIZE_MAX)):
        yield Finding(path=f"{path}.name", message=problem)
    if pipeline.cluster is not None:
        yield from _check_cluster(f"{path}.cluster", pipeline.cluster, topology)
    yield from _check_running(path, pipeline)
    if pipeline.job is not None:
        yield from _check_job(path, pipeline)
        return
    yield from _check_load(path, pipeline)
    yield from check_reading(path, pipeline)
    yield from _check_tables(f"{path}.tables", pipeline)
    yield from _check_steps(f"{path}.steps", pipeline)
    for number, sink in enumerate(pipeline.sinks):
        yield from _check_sink(f"{path}.sinks[{number}]", sink, pipeline, topology)


def _check_running(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    for name in pipeline.spark:
        if name in _OWN_SETTINGS:
            yield Finding(path=f"{path}.spark.{name}", message="the pipeline says this itself")
    if pipeline.retry.backoff_ms > pipeline.retry.backoff_max_ms:
        message = f"exceeds 'backoff_max', which is {pipeline.retry.backoff_max_ms} ms"
        yield Finding(path=f"{path}.retry.backoff", message=message)


def _check_cluster(path: str, name: str, topology: Topology) -> Iterator[Finding]:
    if name not in topology.clusters:
        hint = suggestion(name, topology.clusters)
        yield Finding(path=path, message=f"there is no cluster {name!r}{hint}")


def _check_job(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    for key in _LOADING_KEYS:
        if getattr(pipeline, key):
            yield Finding(path=f"{path}.{key}", message="a job reads and writes by itself: see 'arguments'")
    if pipeline.require is not Completeness.NOTHING:
        yield Finding(path=f"{path}.require", message="only what loads topics can wait for them")
    if pipeline.schedule is not None and pipeline.schedule.continuous_ms is not None:
        yield Finding(path=f"{path}.schedule.continuous", message="a job comes to an end: see 'every'")


def _check_load(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    if missing := [repr(key) for key in ("cluster", "topics", "sinks") if not getattr(pipeline, key)]:
        yield Finding(path=path, message=f"lacks {', '.join(missing)}, and there is no 'job' instead")
    if pipeline.arguments:
        yield Finding(path=f"{path}.arguments", message="are for a 'job', and there is none")
    if pipeline.schema is None and pipeline.format in (RecordFormat.CSV, RecordFormat.AVRO):
        message = f"{pipeline.format.value!r} needs a 'schema'"
        yield Finding(path=f"{path}.format", message=message)
    for key in ("schema", "format_options"):
        if getattr(pipeline, key) and pipeline.format is RecordFormat.RAW:
            yield Finding(path=f"{path}.{key}", message="raw values have none: see 'format'")
    if pipeline.require is Completeness.COMPLETE and _is_continuous(pipeline):
        message = "a continuous pipeline does not wait for windows: see 'cron' and 'every', or say 'mark'"
        yield Finding(path=f"{path}.require", message=message)


def _check_name(path: str, name: str, known: Collection[str]) -> Iterator[Finding]:
    """Of what queries can read; `known` are others in lower case, which is all that Spark tells."""
    if not _WORD.fullmatch(name):
        yield Finding(path=path, message=f"{name!r} is not a name: letters, digits and '_', no digit first")
    elif name.lower() in known:
        yield Finding(path=path, message=f"there is a {name!r} already")


def _check_tables(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    known = {RECORDS}
    for name in pipeline.tables:
        yield from _check_name(f"{path}.{name}", name, known)
        known.add(name.lower())


def _check_steps(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    known = {RECORDS, *(name.lower() for name in pipeline.tables)}
    for number, step in enumerate(pipeline.steps):
        if step.name:  # else told where it is read
            yield from _check_name(f"{path}[{number}].name", step.name, known)
            known.add(step.name.lower())
    names = {step.name for step in pipeline.steps if step.name}
    if len(names) < len(pipeline.steps) or RECORDS in names:
        return
    reads = inputs_of(pipeline.steps)
    for number, step in enumerate(pipeline.steps):
        for name in reads[step.name]:
            if name not in names and name != RECORDS:
                hint = suggestion(name, {RECORDS, *names})
                message = f"there is no step {name!r}{hint}"
                yield Finding(path=f"{path}[{number}].from", message=message)
    try:
        order_steps(pipeline.steps)
    except StepCircleError as error:
        yield Finding(path=path, message=f"steps read one another in a circle: {error}")
        return
    if pipeline.sinks:
        used = used_names(pipeline)
        for number, step in enumerate(pipeline.steps):
            if step.name not in used:
                yield Finding(path=f"{path}[{number}]", message="leads to no sink")


def _check_sink(path: str, sink: SinkSpec, pipeline: PipelineSpec, topology: Topology) -> Iterator[Finding]:
    source = source_of(sink, pipeline.steps)
    known = {RECORDS, *(step.name for step in pipeline.steps)}
    if source not in known:
        yield Finding(path=f"{path}.from", message=f"there is no step {source!r}{suggestion(source, known)}")
    if isinstance(sink.target, TopicSink):
        yield from _check_topic(path, sink.target, pipeline, topology)
    if isinstance(sink.target, JdbcSink):
        yield from _check_jdbc(path, sink.target, sink.options)
    if sink.partition_by and not isinstance(sink.target, FileSink | LakeSink):
        message = "this sink has no subfolders; its windows are known by its columns 'date' and 'hour'"
        yield Finding(path=f"{path}.partition_by", message=message)
    columns = sink.partition_by or ()
    for number, name in enumerate(columns):
        if name in columns[:number]:
            yield Finding(path=f"{path}.partition_by[{number}]", message=f"{name!r} stands there already")


def _check_jdbc(path: str, sink: JdbcSink, options: Collection[str]) -> Iterator[Finding]:
    if not _TABLE.fullmatch(sink.table):
        message = f"{sink.table!r} is not TABLE or SCHEMA.TABLE, of letters, digits and '_'"
        yield Finding(path=f"{path}.jdbc.table", message=message)
    for name in options:
        if name.lower() in SECRET_NAMES:
            message = (
                "is never in the file: write 'password: env:NAME' or 'password: file:/PATH' under 'jdbc'"
            )
            yield Finding(path=f"{path}.options.{name}", message=message)


def _check_topic(path: str, sink: TopicSink, pipeline: PipelineSpec, topology: Topology) -> Iterator[Finding]:
    if not is_legal_topic(sink.topic):
        yield Finding(path=f"{path}.topic", message=f"{sink.topic!r} is not a topic's name")
    if sink.cluster is not None:
        yield from _check_cluster(f"{path}.topic.cluster", sink.cluster, topology)
    topics = pipeline.topics
    if topics is None or sink.cluster not in (None, pipeline.cluster):
        return
    try:
        is_read = any(re.fullmatch(pattern, sink.topic) for pattern in topics.include)
        is_left_out = any(re.fullmatch(pattern, sink.topic) for pattern in topics.exclude)
    except re.error:
        return  # told where the pattern stands
    if is_read and not is_left_out:
        yield Finding(path=f"{path}.topic", message="the pipeline reads this topic: it would go round")


def _check_folders(path: str, pipeline: PipelineSpec, taken: dict[str, str]) -> Iterator[Finding]:
    """Two that write one folder would take the other's files for their own: of two loads with one checkpoint
    each would pass over what the other has loaded.
    """
    targets = [(f"sinks[{number}]", sink.target) for number, sink in enumerate(pipeline.sinks)]
    folders = [
        (key, target.path if isinstance(target, FileSink) else target.table)
        for key, target in targets
        if isinstance(target, FileSink | LakeSink)
    ]
    folders += [("quarantine", pipeline.quarantine or ""), ("checkpoint", pipeline.checkpoint or "")]
    for key, folder in ((key, folder.rstrip("/")) for key, folder in folders if folder):
        for other, owner in taken.items():
            if other == folder or _is_among(folder, other) or _is_among(other, folder):
                yield Finding(path=f"{path}.{key}", message=f"{owner} writes {other} already")
                break
        else:
            taken[folder] = f"{path}.{key}"


def _is_among(folder: str, table: str) -> bool:
    """Whether a folder is one of a table's for its readers, who pass over names that begin with these."""
    inside = folder.removeprefix(f"{table}/")
    return inside != folder and not inside.startswith(("_", "."))


def _is_continuous(pipeline: PipelineSpec) -> bool:
    return pipeline.schedule is not None and pipeline.schedule.continuous_ms is not None
