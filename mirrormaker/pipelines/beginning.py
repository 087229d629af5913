"""Where the first run of a pipeline begins, in every partition there is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.errors import ConfigurationError
from broker.types import TopicPartition
from mirrormaker.pipelines.source import Offsets, start_options, stream_options
from mirrormaker.spark.lookups import START_TIMEOUT_MS, LogLookup, new_cluster
from mirrormaker.spark.offsets import (
    Logs,
    made_anew,
    offsets_from_json,
    offsets_to_json,
    topic_ids_from_json,
)
from mirrormaker.spark.options import SourceOptions, parse_options
from mirrormaker.topology.model import ClusterSpec, PipelineSpec, StartAtOffsets


def find_beginning(
    cluster: ClusterSpec,
    pipeline: PipelineSpec,
    noted: Offsets | None,
    *,
    has_begun: bool,
) -> Offsets:
    """What has been `noted` holds; partitions that have come since, those of topics made anew included, begin
    at their first record, all others where the pipeline says. Once loading `has_begun`, this is for sinks
    that come later, and holds as far as there are records.

    Raises ConfigurationError for offsets that the topics do not have, unless `failOnDataLoss` is false, and
    BrokerError.
    """
    options = stream_options(cluster, pipeline) | start_options(pipeline)
    source = parse_options(options, streaming=True)
    logs, starts = asyncio.run(_look(source))
    if noted is not None:
        anew = made_anew(topic_ids_from_json(noted), logs.topic_ids)
        kept = {each: at for each, at in offsets_from_json(noted).items() if each.topic not in anew}
        known = {each: at for each, at in kept.items() if each in logs.latest}
        if has_begun:
            known = {each: max(at, logs.earliest[each]) for each, at in known.items()}
        return offsets_to_json({**logs.earliest, **known}, logs.topic_ids)
    if isinstance(pipeline.start, StartAtOffsets):
        starts = {**starts, **offsets_from_json(pipeline.start.offsets)}
    found = _within(logs, starts, fail_on_data_loss=source.fail_on_data_loss)
    return offsets_to_json(found, logs.topic_ids)


async def _look(source: SourceOptions) -> tuple[Logs, Mapping[TopicPartition, int]]:
    cluster = new_cluster(source.cluster)
    try:
        await cluster.start(timeout_ms=START_TIMEOUT_MS)
        lookup = LogLookup(cluster, source)
        logs = await lookup.logs()
        return logs, await lookup.starts(logs)
    finally:
        await cluster.close()


def _within(
    logs: Logs, starts: Mapping[TopicPartition, int], *, fail_on_data_loss: bool
) -> dict[TopicPartition, int]:
    """Offsets that the logs have. Raises ConfigurationError, or takes the nearest."""
    problems = []
    found = {}
    for partition, start in sorted(starts.items()):
        if partition not in logs.latest:
            problems.append(f"{partition} is not there")
            continue
        low, high = logs.earliest[partition], logs.latest[partition]
        found[partition] = min(max(start, low), high)
        if found[partition] != start and fail_on_data_loss:
            problems.append(
                f"{partition}: offset {start} is outside the log's {low} to {high}; failOnDataLoss=false "
                "begins with what there is"
            )
    if problems:
        raise ConfigurationError(problems)
    return found
