"""What a task does: read one offset range, as Arrow record batches.

A range is read the same however often it is: its bounds are the driver's, and records that are not there any
more, or never were, are an error with `failOnDataLoss`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from broker.client.cluster import Cluster
from broker.client.consumer import Consumer, ConsumerSettings, Isolation, OffsetReset, PartitionError
from broker.client.fetch import FetchedBatches
from broker.client.offsets import earliest_offsets, latest_offsets
from broker.errors import BrokerError, ErrorCode
from mirrormaker.spark.answer_decoder import DecodingTerms, decode_answer
from mirrormaker.spark.lookups import topic_id_of
from mirrormaker.spark.offsets import ANY_TIME, DataLossError, OffsetRange, TimeRange
from mirrormaker.spark.options import FetchTerms, SourceOptions
from mirrormaker.spark.task_process import THIS_PROCESS

_LOOK_AFTER_MS = 1_000
"""A task that hears nothing for so long looks whether what it waits for is there at all."""

_ANOTHER = "the topic was deleted and made anew"
_FETCH_BYTES_MIN = 64 * 1024
_RECORD_BYTES = 1024
"""How large records are taken to be before any has come."""


def read_range(
    options: SourceOptions, offset_range: OffsetRange, times: TimeRange = ANY_TIME
) -> Iterator[pa.RecordBatch]:
    """The records of one range and these times, some megabytes at a time.

    Raises DataLossError for records that are gone with `failOnDataLoss`, TimeoutError for a cluster that does
    not deliver, CorruptRecordsError.
    """
    terms = DecodingTerms(
        wanted=offset_range,
        times=times,
        committed_only=options.terms.committed_only,
        check_crcs=options.terms.check_crcs,
        include_headers=options.include_headers,
    )
    with THIS_PROCESS.task(options.cluster) as connected:
        runner = connected.runner
        reading = _Reading(connected.cluster, options, offset_range)
        is_there = runner.run(reading.start())
        try:
            while is_there and reading.position < offset_range.end:
                fetched = runner.run(reading.fetch())
                if fetched is None:
                    break
                yield from decode_answer(fetched, terms)
        finally:
            runner.run(reading.close())


class _Reading:
    """The fetching of one range, from `position` on."""

    def __init__(self, cluster: Cluster, options: SourceOptions, offset_range: OffsetRange) -> None:
        self.position = offset_range.start
        self._range = offset_range
        self._fail_on_data_loss = options.fail_on_data_loss
        self._poll_timeout_ms = options.terms.poll_timeout_ms
        self._cluster = cluster
        self._consumer = Consumer(cluster, settings=_consumer_settings(options.terms, offset_range.count))

    async def start(self) -> bool:
        """False when the topic is another by now, and that may be. Raises DataLossError."""
        await self._consumer.start()
        if await self._is_another():
            self._lose(_ANOTHER)
            return False
        self._consumer.assign({self._range.partition: self.position})
        return True

    async def close(self) -> None:
        await self._consumer.close()

    async def fetch(self) -> FetchedBatches | None:
        """The next answer; None when the rest of the range is gone and that may be."""
        waited_ms = 0
        while waited_ms < self._poll_timeout_ms:
            try:
                fetched = await self._consumer.take_batches(timeout_ms=_LOOK_AFTER_MS)
            except PartitionError as error:
                if error.code is ErrorCode.INCONSISTENT_TOPIC_ID:
                    self._lose(_ANOTHER)
                    return None
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                if not await self._skip_lost():
                    return None
                continue
            if fetched is not None:
                self.position = fetched.next_offset
                return fetched
            if not await self._is_there():
                return None
            waited_ms += _LOOK_AFTER_MS
        raise TimeoutError(f"nothing came of {self._range.partition} within {self._poll_timeout_ms} ms")

    async def _is_another(self) -> bool:
        """Whether the topic was deleted and made anew since the driver looked; what an earlier task has
        learnt of it may be older than that.
        """
        wanted, topic = self._range.topic_id, self._range.partition.topic
        if wanted is None:
            return False
        metadata = await self._cluster.ensure([topic])
        if topic_id_of(metadata, topic) not in (None, wanted):
            metadata = await self._cluster.refresh([topic])
        return topic_id_of(metadata, topic) not in (None, wanted)

    async def _skip_lost(self) -> bool:
        """Go on at the first record that is kept; False when the range has none. Raises DataLossError."""
        partition = self._range.partition
        await self._find_leader()
        earliest = (await earliest_offsets(self._cluster, [partition]))[partition]
        self._lose(f"the log begins at {earliest}")
        if not self.position < earliest < self._range.end:
            return False
        self.position = earliest
        self._consumer.seek(partition, earliest)
        return True

    async def _is_there(self) -> bool:
        """Whether the log reaches as far as the range. Raises DataLossError."""
        partition = self._range.partition
        await self._find_leader()
        latest = (await latest_offsets(self._cluster, [partition]))[partition]
        if latest >= self._range.end:
            return True
        self._lose(f"the log ends at {latest}")
        return self.position < latest

    async def _find_leader(self) -> None:
        """Who leads by now, before what a log says is believed; an earlier task may have learnt who did."""
        with contextlib.suppress(BrokerError):  # who asks next tries again
            await self._cluster.refresh([self._range.partition.topic])

    def _lose(self, reason: str) -> None:
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{self._range.partition}: offsets {self.position} to {self._range.end} are not all there: "
                f"{reason}; failOnDataLoss=false reads what there is"
            )


def _consumer_settings(terms: FetchTerms, count: int) -> ConsumerSettings:
    """For a range of so many offsets: what lies behind a small one is not fetched along with it."""
    fetch_bytes = max(_FETCH_BYTES_MIN, count * _RECORD_BYTES)
    return ConsumerSettings(
        fetch_max_bytes=terms.fetch_max_bytes,
        fetch_max_wait_ms=terms.fetch_max_wait_ms,
        fetch_min_bytes=terms.fetch_min_bytes,
        partition_max_bytes=min(terms.partition_max_bytes, fetch_bytes),
        rack=terms.rack,
        isolation=Isolation.READ_COMMITTED if terms.committed_only else Isolation.READ_UNCOMMITTED,
        offset_reset=OffsetReset.NONE,
    )
