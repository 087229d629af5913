"""DescribeLogDirs: data roots, live and offline, and the size of every log in them."""

from __future__ import annotations

from itertools import groupby

from broker.errors import ErrorCode, ProtocolError, StorageError
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.storage.log import Log
from broker.storage.log_directory import LogDirectory
from broker.types import TopicPartition
from broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Every root, with the partitions that were asked for (none named: all)."""
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    directories = services.replicas.directories
    offline = [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(root))
        for root in directories.offline
    ]
    live = [_describe(services, directory, wanted) for directory in directories.live.values()]
    return DescribeLogDirsResponse(results=[*live, *offline])


def refuse(request: DescribeLogDirsRequest, error: ProtocolError, version: int) -> DescribeLogDirsResponse:
    """No root; before version 3 without saying why."""
    return DescribeLogDirsResponse(error_code=error.code)


def _describe(
    services: Services, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> DescribeLogDirsResult:
    logs, futures = directory.logs, directory.futures  # as of now: a thread may take one out meanwhile
    shown = {**logs, **futures}
    chosen = sorted(shown if wanted is None else shown.keys() & wanted)
    try:
        space = directory.space()
    except StorageError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory.path))
    return DescribeLogDirsResult(
        log_dir=str(directory.path),
        topics=[
            DescribeLogDirsTopic(
                name=topic,
                partitions=[
                    _describe_log(services, shown[each], each, is_future=each in futures)
                    for each in partitions
                ],
            )
            for topic, partitions in groupby(chosen, key=lambda partition: partition.topic)
        ],
        total_bytes=space.total,
        usable_bytes=space.usable,
    )


def _describe_log(
    services: Services, log: Log, partition: TopicPartition, *, is_future: bool
) -> DescribeLogDirsPartition:
    """Of a log, or of a copy that is about to move in, which lags behind the log."""
    replica = services.replicas.get(*partition)
    end = log.log_end_offset
    if replica is not None:
        end = replica.log.log_end_offset if is_future else replica.high_watermark
    return DescribeLogDirsPartition(
        partition_index=partition.partition,
        partition_size=log.size,
        offset_lag=max(end - log.log_end_offset, 0),
        is_future_key=is_future,
    )
