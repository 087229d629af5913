"""A streaming query on topics: where it begins, how far each trigger goes, and what its tasks read.

Offsets are those of the checkpoint, in the form of Spark's own Kafka source, so that a query can go on where
one of that source stopped; ids beside them tell topics that were made anew, which begin at their first
record. A trigger's rows are fixed by its two offsets: tried again, it reads the same. Where the first one
began is noted in its end: Spark keeps no offset from before it, and asks again.
One object lives on the driver as long as its query and keeps one connection to the cluster; tasks have only
its options.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.spark.admission import count_new, limit_offsets
from mirrormaker.spark.batch_reader import RangePartition, read_partition
from mirrormaker.spark.lookups import DriverLookup, LogLookup
from mirrormaker.spark.offsets import (
    DataLossError,
    JsonOffsets,
    Logs,
    OffsetRange,
    Offsets,
    TopicIds,
    beginning_of,
    made_anew,
    offsets_from_json,
    offsets_to_json,
    split_ranges,
    topic_ids_from_json,
    with_beginning,
    without_beginning,
)
from mirrormaker.spark.options import SourceOptions

_log = logger("spark_source")


class MirrorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's source."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._lookup: DriverLookup | None = None
        self._latest = Logs()
        """As of the last look."""
        self._initial: JsonOffsets | None = None
        self._told: JsonOffsets = {}
        """Where the last trigger ends."""
        self._unseen: frozenset[TopicPartition] = frozenset()
        """What was read and was not there at the last look: told as lost, and not waited for again."""
        self._target: Logs | None = None
        """Where a query with Trigger.AvailableNow ends."""
        self._taken_at = -math.inf
        """When a trigger last did not wait; the first of a run never does, as in Spark's own source."""

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query begins. Raises ConfigurationError for topics that do not exist."""

        async def starts(lookup: LogLookup) -> JsonOffsets:
            logs = await lookup.logs()
            return offsets_to_json(await lookup.starts(logs), logs.topic_ids)

        self._initial = self._on_driver.ask(starts)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What a trigger takes, as maxOffsetsPerTrigger and minOffsetsPerTrigger say."""
        admission = self._options.admission
        if admission.offsets_max is not None:
            return ReadMaxRows(admission.offsets_max)
        if admission.offsets_min is not None:
            return ReadMinRows(admission.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What there is now is all that the query will read."""
        self._target = self._look({}, {})

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the next trigger ends that begins at `start`. Partitions that are new begin where their logs
        do; those that are out of sight, as their topic may not be told of for a moment, stay where they were
        until it is known to be another. Raises DataLossError for topics, partitions and records that are
        gone, with failOnDataLoss.
        """
        ids = topic_ids_from_json(start)
        known = offsets_from_json(start)
        waited_for = {partition: at for partition, at in known.items() if partition not in self._unseen}
        logs = self._look(waited_for, ids)
        goal = self._goal(ids, logs)
        known = self._without_gone(known, ids, goal.topic_ids)
        self._check_kept(known, logs)
        unseen = {each: at for each, at in known.items() if self._is_out_of_sight(each, logs)}
        self._unseen = frozenset(unseen)
        begin = {**self._begin_new(known, logs), **known}
        latest = _not_before(known, goal, logs)
        if self._waits_for_more(count_new(begin, latest), limit):
            return start
        self._taken_at = time.monotonic()
        if isinstance(limit, ReadMaxRows):
            latest = limit_offsets(begin, latest, limit.max_rows)
        told = offsets_to_json({**unseen, **latest}, {**ids, **goal.topic_ids})
        if told == without_beginning(start):
            told = start
        if start == self._initial:
            told = with_beginning(told, start)
        self._told = told
        return told

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """How far the topics reach, for the progress of the query."""
        latest = offsets_to_json(self._latest.latest, self._latest.topic_ids)
        return (self._told if latest == without_beginning(self._told) else latest) or None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The ranges between two offsets, for a trigger or for one that is tried again. Raises DataLossError,
        with failOnDataLoss, for what was new when the trigger was planned and is gone, and for a first
        trigger of Spark's own source that began before where the query would now.
        """
        beginning = beginning_of(end)
        if beginning is None and start == self._initial:
            self._check_beginning(start, end)
        start = beginning or start
        ids, before = topic_ids_from_json(end), topic_ids_from_json(start)
        anew = made_anew(before, ids)
        begin = {each: at for each, at in offsets_from_json(start).items() if each.topic not in anew}
        ends = offsets_from_json(end)
        if ends.keys() - begin.keys():
            begin = {**self._begin_new(begin, self._look({**ends, **begin}, ids)), **begin}
            for partition in sorted(ends.keys() - begin.keys()):
                self._lose(f"{partition} is gone; it was to be read up to offset {ends[partition]}")
        ranges = [
            OffsetRange(
                partition=partition, start=begin[partition], end=high, topic_id=ids.get(partition.topic)
            )
            for partition, high in sorted(ends.items())
            if begin.get(partition, high) < high
        ]
        options = self._options
        pieces = split_ranges(ranges, count_min=options.partitions_min, size_max=options.records_max)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def stop(self) -> None:
        if self._lookup is not None:
            self._lookup.close()
            self._lookup = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the options."""
        return {"_options": self._options}

    @property
    def _on_driver(self) -> DriverLookup:
        if self._lookup is None:
            self._lookup = DriverLookup(self._options)
        return self._lookup

    def _look(self, known: Offsets, topic_ids: TopicIds) -> Logs:
        logs = self._on_driver.ask(lambda lookup: lookup.logs_beyond(known, topic_ids))
        self._latest = logs
        return logs

    def _goal(self, topic_ids: TopicIds, logs: Logs) -> Logs:
        """Where the query ends: as it was prepared, but for topics that a node which lagged behind took for
        others than those that are read.
        """
        if self._target is None:
            return logs
        others = made_anew(topic_ids, self._target.topic_ids)
        mistaken = {topic for topic in others if logs.topic_ids.get(topic) == topic_ids[topic]}
        latest, ids = self._target.latest, self._target.topic_ids
        return Logs(
            latest={each: offset for each, offset in latest.items() if each.topic not in mistaken},
            topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic not in mistaken},
        )

    def _without_gone(self, known: Offsets, topic_ids: TopicIds, told: TopicIds) -> dict[TopicPartition, int]:
        """Of topics that are still the same. Raises DataLossError, with failOnDataLoss, for others."""
        anew = made_anew(topic_ids, told)
        for topic in anew:
            self._lose(f"topic {topic} was deleted and made anew; it was read up to {_told(known, topic)}")
        return {partition: offset for partition, offset in known.items() if partition.topic not in anew}

    def _check_kept(self, known: Offsets, logs: Logs) -> None:
        """Raises DataLossError, with failOnDataLoss, where there is less than was read already."""
        for partition, offset in sorted(known.items()):
            if partition in self._unseen and partition not in logs.latest:
                continue
            if partition not in logs.latest:
                selected = self._options.selection.names(partition)
                reason = "is gone" if selected else "is not among what is to be read any more"
                self._lose(f"{partition} {reason}; it was read up to offset {offset}")
            elif logs.latest[partition] < offset:
                self._lose(f"{partition} ends at {logs.latest[partition]}; it was read up to offset {offset}")

    def _is_out_of_sight(self, partition: TopicPartition, logs: Logs) -> bool:
        """Whether it is to be read and is not there."""
        return partition not in logs.latest and self._options.selection.names(partition)

    def _check_beginning(self, start: JsonOffsets, end: JsonOffsets) -> None:
        """Raises DataLossError, with failOnDataLoss, where a first trigger that does not say where it began
        ends before it would begin by now.
        """
        begin = offsets_from_json(start)
        for partition, high in sorted(offsets_from_json(end).items()):
            if begin.get(partition, high) > high:
                self._lose(
                    f"{partition} was to be read up to offset {high}, from where is not noted, and the query"
                    f" would begin at {begin[partition]} now"
                )

    def _begin_new(self, known: Offsets, logs: Logs) -> dict[TopicPartition, int]:
        """Where to begin in partitions that appeared while the query ran: at their first record. Raises
        DataLossError, with failOnDataLoss, for one that has lost some already.
        """
        new = {partition: offset for partition, offset in logs.earliest.items() if partition not in known}
        for partition, offset in sorted(new.items()):
            if offset > 0:
                self._lose(f"{partition} is new and begins at offset {offset}, not 0")
        return new

    def _waits_for_more(self, count: int, limit: ReadLimit) -> bool:
        """Whether the trigger had better wait until minOffsetsPerTrigger have come."""
        admission = self._options.admission
        if isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._taken_at) * 1000
        return count < (admission.offsets_min or 0) and waited_ms < admission.delay_max_ms

    def _lose(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{reason}; failOnDataLoss=false goes on with what there is")
        _log.warning("data_lost", reason=reason)


def _not_before(known: Offsets, goal: Logs, logs: Logs) -> dict[TopicPartition, int]:
    """Where the query ends, of partitions that are there: a leader that had just taken over may have told of
    less than was read already when the query was prepared.
    """
    return {
        partition: max(goal.latest.get(partition, 0), min(known.get(partition, 0), high))
        for partition, high in logs.latest.items()
        if partition in goal.latest or partition in known
    }


def _told(known: Offsets, topic: str) -> str:
    offsets = {each.partition: offset for each, offset in sorted(known.items()) if each.topic == topic}
    return ", ".join(f"offset {offset} of partition {number}" for number, offset in offsets.items())
