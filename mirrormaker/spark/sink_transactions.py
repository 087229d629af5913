"""Writing exactly once: each task of each trigger in a transaction that also notes that it was written.

A task writes under the transactional id PREFIX/JOB/PARTITION, which fences attempts before it, and commits
its rows together with a mark: the offset of the group of that name is the number of the next trigger. An
attempt that finds the mark of its own trigger writes nothing, nor does a `df.write` that finds one of a later
write of its `txnAppId`; a query that does has another checkpoint than it had, which is an error. Readers of
committed records so see each row once, whatever died in between, as long as

- a trigger that is tried again gives each task the rows that it had: sources with offsets do, functions like
  rand() do not. The mark carries the rows' `fingerprint`, and other rows are an error;
- the mark is kept: groups without members forget offsets after `offsets.retention.minutes` (a week).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from broker.client.cluster import Cluster
from broker.client.group_offsets import OffsetAndMetadata, fetch_offsets
from broker.client.producer import Producer
from broker.client.transactional_producer import TransactionalProducer
from broker.types import TopicPartition
from mirrormaker.spark.fingerprint import Fingerprint
from mirrormaker.spark.sink_options import SinkOptions
from mirrormaker.spark.sink_rows import topics_of

SendRows = Callable[[Cluster, Producer, SinkOptions, Iterator[pa.RecordBatch]], Awaitable[int]]


class ChangedRowsError(RuntimeError):
    """A task was tried again with other rows than those it has written, or after a later trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """One task of one trigger."""

    job: str
    epoch: int
    partition: int
    may_be_past: bool = False
    """Whether one that is older than what was written has been written, too: nothing says so of a trigger."""

    def name(self, prefix: str) -> str:
        """The task's transactional id, and the group that its marks are kept for."""
        return f"{prefix}/{self.job}/{self.partition}"


async def write_once(
    cluster: Cluster,
    options: SinkOptions,
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    send_rows: SendRows,
) -> int:
    """Write the rows of the task unless an attempt before has; returns how many it has.

    Raises ChangedRowsError, ProducerFencedError where another attempt took over, and as `send_rows`.
    """
    name = identity.name(options.id_prefix)
    rows = Fingerprint()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        if (mark := await _find_mark(cluster, name, identity.epoch)) is not None:
            _check_repeated(identity, mark, rows)
        return 0
    passing = rows.passing(_with_first(first, batches))
    settings = replace(options.producer, transactional_id=name)
    async with TransactionalProducer(cluster, settings=settings) as producer:
        await producer.init_transactions()
        mark = await _find_mark(cluster, name, identity.epoch)
        if mark is not None:
            for _ in passing:
                pass
            _check_repeated(identity, mark, rows)
            return rows.count
        place = TopicPartition(topics_of(first, options.topic)[0], 0)
        async with producer.transaction():
            await send_rows(cluster, producer, options, passing)
            note = OffsetAndMetadata(offset=identity.epoch + 1, metadata=str(rows))
            await producer.send_offsets_to_transaction({place: note}, name)
    return rows.count


async def has_written(cluster: Cluster, options: SinkOptions, tasks: Iterable[TaskIdentity]) -> bool:
    """Whether any of these tasks has written its rows. Attempts of theirs that are under way still cannot
    from then on. Raises BrokerError.
    """
    for identity in tasks:
        name = identity.name(options.id_prefix)
        settings = replace(options.producer, transactional_id=name)
        async with TransactionalProducer(cluster, settings=settings) as producer:
            await producer.init_transactions()
        if await _find_mark(cluster, name, identity.epoch) is not None:
            return True
    return False


def _check_repeated(identity: TaskIdentity, mark: OffsetAndMetadata, rows: Fingerprint) -> None:
    """Raises ChangedRowsError unless it is known that the rows are written."""
    task, last = f"task {identity.partition} of trigger {identity.epoch}", mark.offset - 1
    if last > identity.epoch:
        if not identity.may_be_past:
            raise ChangedRowsError(
                f"{task} comes after trigger {last} was written: the checkpoint is an older one, and what it"
                " repeats need not be what was written. Give the query a checkpoint of its own"
            )
    elif mark.metadata != str(rows):
        raise ChangedRowsError(
            f"{task} has written {mark.metadata} and now has {rows}: exactly once needs the same rows in the"
            " same tasks when a trigger is repeated"
        )


def _with_first(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


async def _find_mark(cluster: Cluster, name: str, epoch: int) -> OffsetAndMetadata | None:
    """The last mark, None where neither the trigger nor a later one was written. Each topic has a mark."""
    marks = (await fetch_offsets(cluster, name)).values()
    return max((mark for mark in marks if mark.offset > epoch), key=lambda mark: mark.offset, default=None)
