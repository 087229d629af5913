"""Checks of what a pipeline reads: options that other keys stand for, framings, starts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mirrormaker.topology.findings import Finding
from mirrormaker.topology.model import PipelineSpec, RecordFormat, StartAtOffsets, TopicSelection
from mirrormaker.topology.naming import compile_naming, pattern_problem

CONFLUENT = "confluent"
_SAID_ELSEWHERE = {
    "kafka.bootstrap.servers": "the 'cluster' says where it is",
    "subscribe": "see 'topics'",
    "subscribepattern": "see 'topics'",
    "subscribepatterns": "see 'topics'",
    "assign": "see 'topics'",
    "startingoffsets": "see 'start'",
    "startingoffsetselsewhere": "see 'start'",
    "startingtimestamp": "see 'start'",
    "startingoffsetsbytimestamp": "see 'start'",
    "startingoffsetsbytimestampstrategy": "see 'start'",
    "maxoffsetspertrigger": "see 'batch_records'",
}
_OF_SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
_OWN_FORMAT_OPTIONS = {
    "mode": "records that are not of the format go to quarantine",
    "columnnameofcorruptrecord": "records that are not of the format go to quarantine",
}


def check_reading(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    """Every problem of what `pipeline` reads that neither Spark nor the cluster is needed for."""
    yield from _check_source_options(f"{path}.source_options", pipeline)
    yield from _check_format_options(f"{path}.format_options", pipeline)
    yield from _check_start(f"{path}.start.offsets", pipeline)


def _check_source_options(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    for name in pipeline.source_options:
        lower = name.lower()
        if lower.startswith(_OF_SECURITY):
            yield Finding(path=f"{path}.{name}", message="see 'security' of the cluster")
        elif lower in _SAID_ELSEWHERE:
            yield Finding(path=f"{path}.{name}", message=_SAID_ELSEWHERE[lower])


def _check_format_options(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    for name, value in pipeline.format_options.items():
        if name.lower() in _OWN_FORMAT_OPTIONS:
            yield Finding(path=f"{path}.{name}", message=_OWN_FORMAT_OPTIONS[name.lower()])
        elif name == "framing" and pipeline.format is not RecordFormat.AVRO:
            yield Finding(path=f"{path}.framing", message="only 'avro' has one")
        elif name == "framing" and value != CONFLUENT:
            yield Finding(path=f"{path}.framing", message=f"{value!r} is none: there is {CONFLUENT!r}")
        elif name != "framing" and pipeline.format is RecordFormat.AVRO:
            yield Finding(path=f"{path}.{name}", message="'avro' has no option but 'framing'")


def _check_start(path: str, pipeline: PipelineSpec) -> Iterator[Finding]:
    topics = pipeline.topics
    if topics is None or not isinstance(pipeline.start, StartAtOffsets):
        return
    if any(map(pattern_problem, (*topics.include, *topics.exclude))):
        return  # told where the pattern stands
    naming = compile_naming("", TopicSelection(include=topics.include, exclude=topics.exclude))
    for topic in pipeline.start.offsets:
        if not naming.selects(topic):
            yield Finding(path=f"{path}.{topic}", message="the pipeline does not read this topic")
