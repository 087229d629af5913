"""Writing: a task sends its rows as batches of Kafka's format, through a producer of its own.

At least once: a task that is tried again writes its rows again, as with Spark's own sink; within one attempt
an idempotent producer writes each once. Exactly once: `sink_transactions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from broker.client.cluster import Cluster
from broker.client.producer import Delivery, Producer
from broker.errors import BrokerError, ProtocolError
from mirrormaker.spark.row_encoder import encode_within
from mirrormaker.spark.sink_options import SinkDelivery, SinkOptions
from mirrormaker.spark.sink_rows import RowError, target_rows, topics_of, with_usual_types
from mirrormaker.spark.sink_transactions import TaskIdentity, write_once
from mirrormaker.spark.task_process import THIS_PROCESS
from mirrormaker.spark.topic_limits import REFUSALS, TopicLimits, find_limits

_QUERY_ID = "sql.streaming.queryId"
_EPOCH = "streaming.sql.batchId"
"""Properties that Spark gives the tasks of a streaming query."""
_DELIVERIES_MAX = 4096
"""Batches whose fate is looked at later at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What a task wrote."""

    rows: int


class MirrorWriter(DataSourceArrowWriter):
    """One `df.write`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Write the rows of one task. Raises RowError, BrokerError."""
        known = self._options.write_id
        job, epoch = (self._name, 0) if known is None else (known.app, known.version)
        identity = TaskIdentity(
            job=job, epoch=epoch, partition=_task().partitionId(), may_be_past=known is not None
        )
        return _write(self._options, identity, iterator)


class MirrorStreamWriter(DataSourceStreamArrowWriter):
    """One `df.writeStream`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """Write the rows of one task of a trigger. Raises RowError, BrokerError."""
        task = _task()
        identity = TaskIdentity(
            job=task.getLocalProperty(_QUERY_ID) or "",
            epoch=int(task.getLocalProperty(_EPOCH) or 0),
            partition=task.partitionId(),
        )
        return _write(self._options, identity, iterator)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "rows are written by tasks"
    return task


def _write(options: SinkOptions, identity: TaskIdentity, batches: Iterator[pa.RecordBatch]) -> Written:
    with THIS_PROCESS.task(options.cluster) as connected:
        rows = map(with_usual_types, batches)
        return connected.runner.run(_write_rows(connected.cluster, options, identity, rows))


async def _write_rows(
    cluster: Cluster, options: SinkOptions, identity: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> Written:
    if options.delivery is SinkDelivery.EXACTLY_ONCE:
        return Written(rows=await write_once(cluster, options, identity, batches, send_rows))
    async with Producer(cluster, settings=options.producer) as producer:
        return Written(rows=await send_rows(cluster, producer, options, batches))


async def send_rows(
    cluster: Cluster, producer: Producer, options: SinkOptions, batches: Iterator[pa.RecordBatch]
) -> int:
    """Write all rows and wait until they are written; returns how many. Raises RowError where the cluster
    refuses one, and BrokerError.
    """
    deliveries: list[Delivery] = []
    try:
        return await _send(cluster, producer, options, batches, deliveries)
    except BrokerError as error:
        await _raise_refusal(deliveries, error)
        raise


async def _send(
    cluster: Cluster,
    producer: Producer,
    options: SinkOptions,
    batches: Iterator[pa.RecordBatch],
    deliveries: list[Delivery],
) -> int:
    known: dict[str, TopicLimits] = {}
    count = 0
    async for batch in _awaited(batches):
        if not batch.num_rows:
            continue
        count += batch.num_rows
        topics = topics_of(batch, options.topic)
        if not known.keys() >= set(topics):
            await look_anew(cluster, topics, options)
            known |= await find_limits(cluster, topics, options.producer.max_request_bytes)
        found = target_rows(
            batch,
            options.topic,
            lambda topic: len(cluster.partitions(topic)),
            now_ms=int(time.time() * 1000),
            include_headers=options.include_headers,
        )
        records_bytes_max = min(known[topic].records_bytes_max for topic in topics)
        terms = replace(options.batches, bytes_max=min(options.batches.bytes_max, records_bytes_max))
        limits = [known[partition.topic] for partition in found.partitions]
        bytes_max = [limit.bytes_max for limit in limits]
        for target, encoded in encode_within(found.rows, found.targets, terms, bytes_max.__getitem__):
            partition = found.partitions[target]
            limits[target].check_size(len(encoded))
            deliveries.append(await producer.send_batch(partition, encoded))
        if len(deliveries) > _DELIVERIES_MAX:
            await _settle(deliveries)
    await producer.flush()
    await _settle(deliveries)
    return count


async def look_anew(cluster: Cluster, topics: list[str], options: SinkOptions) -> None:
    """How many partitions there are by now: an earlier task may have learnt how many there were. Topics that
    are not there nodes make if their settings say so, as for every producer. Raises BrokerError for others.
    """
    with contextlib.suppress(BrokerError):  # tried again below
        await cluster.refresh(topics, create=True)
    await cluster.ensure(topics, create=True, timeout_ms=options.producer.max_block_ms)


async def _awaited(batches: Iterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    """What Spark hands over, waited for in a thread: sending goes on meanwhile."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        yield batch


async def _settle(deliveries: list[Delivery]) -> None:
    """Forget what is written. Raises why a batch could not be."""
    for delivery in deliveries:
        await delivery
    deliveries.clear()


async def _raise_refusal(deliveries: list[Delivery], error: BrokerError) -> None:
    """Raises RowError where it is for a row that not all could be written: the `error` that was met first may
    only say that a transaction has failed, of which another batch is the cause.
    """
    for met in (error, *await asyncio.gather(*deliveries, return_exceptions=True)):
        if isinstance(met, ProtocolError) and met.code in REFUSALS:
            raise RowError(f"a row is refused: {met}") from met
