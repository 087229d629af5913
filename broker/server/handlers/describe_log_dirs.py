"""DescribeLogDirs: data roots, and the size of every log in them."""

from __future__ import annotations

import os
from itertools import groupby

from broker.errors import ErrorCode, ProtocolError
from broker.server.request import RequestContext
from broker.server.services import Services
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
    return DescribeLogDirsResponse(
        results=[_describe(directory, wanted) for directory in services.replicas.directories]
    )


def refuse(request: DescribeLogDirsRequest, error: ProtocolError, version: int) -> DescribeLogDirsResponse:
    """No root; before version 3 without saying why."""
    return DescribeLogDirsResponse(error_code=error.code)


def _describe(directory: LogDirectory, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    chosen = sorted(partition for partition in directory.logs if wanted is None or partition in wanted)
    try:
        space = os.statvfs(directory.path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory.path))
    return DescribeLogDirsResult(
        log_dir=str(directory.path),
        topics=[
            DescribeLogDirsTopic(
                name=topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=partition.partition, partition_size=directory.logs[partition].size
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in groupby(chosen, key=lambda partition: partition.topic)
        ],
        total_bytes=space.f_blocks * space.f_frsize,
        usable_bytes=space.f_bavail * space.f_frsize,
    )
