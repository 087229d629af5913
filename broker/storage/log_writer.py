"""Batches on their way into a log's files, as the leader takes them from producers or as a leader sent them.

What batches tell beside their data is kept along with it: producers with their transactions, and leader
epochs. An append is all or nothing. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

from broker.errors import ErrorCode, ProtocolError
from broker.records.batch import LENGTH_OVERHEAD, BatchHeader, read_header, rebase, stamp_append_time
from broker.records.control import Marker
from broker.records.record import NO_TIMESTAMP
from broker.storage.appends import (
    APART,
    Appended,
    PlacedBatch,
    PositionedBatches,
    fill_in,
    grouped,
    joined,
    placed_as_sent,
    validate_batch,
    validate_batches,
)
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_config import LogConfig
from broker.storage.log_files import LogFiles
from broker.storage.producer_entry import Original
from broker.storage.producers import ProducerStates
from broker.storage.transactions import AbortedTransaction


class LogWriter:
    """See the module's description."""

    __slots__ = ("_config", "_epochs", "_files", "_producers", "_stamps")

    def __init__(
        self, files: LogFiles, producers: ProducerStates, epochs: LeaderEpochs, config: LogConfig
    ) -> None:
        self._files = files
        self._producers = producers
        self._epochs = epochs
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take other settings from now on."""
        self._config = config
        self._stamps = config.stamps_append_time

    # As the leader

    def append(self, records: bytearray | memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Store one or more whole batches; see `Log.append`."""
        if len(records) > self._config.segment_bytes:
            raise ProtocolError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(records)} bytes do not fit a segment of {self._config.segment_bytes}",
            )
        header = read_header(records)
        if header.batch_length + LENGTH_OVERHEAD != len(records):
            return self._append_several(records, leader_epoch, now_ms)
        validate_batch(records, 0, header, size_max=self._config.max_message_bytes)
        if header.producer_id >= 0 and (original := self._producers.check(header)) is not None:
            return self._duplicate(original)
        appended = self._append_one(records, header, leader_epoch, now_ms)
        if header.producer_id >= 0:
            self._producers.appended(header, appended.first_offset, now_ms)
        return appended

    def append_unsequenced(self, batch: bytearray, leader_epoch: int, now_ms: int) -> Appended:
        """Store a coordinator's part of a transaction; see `Log.append_unsequenced`."""
        header = read_header(batch)
        if len(batch) > self._config.max_message_bytes:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(batch)} bytes, the limit is {self._config.max_message_bytes}",
            )
        self._producers.check_unsequenced(header)
        appended = self._append_one(batch, header, leader_epoch, now_ms)
        self._producers.joined(header, appended.first_offset, now_ms)
        return appended

    def append_marker(self, batch: bytearray, marker: Marker, leader_epoch: int, now_ms: int) -> Appended:
        """End a producer's transaction; see `Log.append_marker`."""
        header = read_header(batch)
        self._producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        appended = self._append_one(batch, header, leader_epoch, now_ms)
        self._note(self._producers.marked(read_header(batch), marker, now_ms))
        return appended

    def _append_one(
        self, records: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> Appended:
        """The hot path: one batch that was found good."""
        files = self._files
        first_offset = files.end
        rebase(records, 0, first_offset, leader_epoch)
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if self._stamps:
            stamp_append_time(records, 0, header, now_ms)
            max_timestamp = append_time = now_ms
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, first_offset)
        last_offset = first_offset + header.last_offset_delta
        placed = PlacedBatch(0, len(records), last_offset, max_timestamp)
        files.store(records, (placed,), first_offset, now_ms)
        return Appended(first_offset, last_offset, append_time, files.start, False)

    def _append_several(self, records: bytearray | memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Several batches in one append; those that were stored before are left out, and count as stored
        where they are.
        """
        view = memoryview(records)
        batches = validate_batches(view, size_max=self._config.max_message_bytes)
        if all(header.producer_id < 0 for _, header in batches):
            return self._append_fresh(view, batches, leader_epoch, now_ms)
        verdicts = self._producers.check_all(header for _, header in batches)
        fresh = [batch for batch, verdict in zip(batches, verdicts, strict=True) if verdict is None]
        originals = [verdict for verdict in verdicts if verdict is not None]
        if not fresh:
            appended = self._duplicate(max(originals, key=attrgetter("last_offset")))
        else:
            appended = self._append_fresh(view, fresh, leader_epoch, now_ms)
            self._producers.appended_together((header for _, header in fresh), appended.first_offset, now_ms)
        if not originals:
            return appended
        return appended._replace(first_offset=_first_offset(batches, verdicts, appended.first_offset))

    def _append_fresh(
        self, view: memoryview, batches: PositionedBatches, leader_epoch: int, now_ms: int
    ) -> Appended:
        files = self._files
        first_offset = files.end
        append_time = now_ms if self._stamps else NO_TIMESTAMP
        placed = fill_in(view, batches, first_offset, leader_epoch, append_time)
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, first_offset)
        files.store(joined(view, batches), placed, first_offset, now_ms)
        return Appended(first_offset, placed[-1].last_offset, append_time, files.start, False)

    def _duplicate(self, original: Original) -> Appended:
        append_time = original.timestamp if self._stamps else NO_TIMESTAMP
        return Appended(original.first_offset, original.last_offset, append_time, self._files.start, True)

    # As a follower

    def append_as_sent(
        self, view: memoryview, batches: PositionedBatches, markers: Mapping[int, Marker], now_ms: int
    ) -> None:
        """Store neighbouring batches of `view` as they are, with the markers among them by position. Raises
        StorageError, then a part may have been stored.
        """
        for group in grouped(batches, self._config.segment_bytes):
            self._store_as_sent(view, group, markers, now_ms)

    def _store_as_sent(
        self, view: memoryview, batches: PositionedBatches, markers: Mapping[int, Marker], now_ms: int
    ) -> None:
        (start, first), (last_position, last) = batches[0], batches[-1]
        for _, header in batches:
            if header.leader_epoch > self._epochs.latest:
                self._epochs.assign(header.leader_epoch, header.base_offset)
        data = view[start : last_position + last.size]
        self._files.store(data, placed_as_sent(batches), first.base_offset, now_ms)
        for position, header in batches:
            self._note(self._producers.replay(header, now_ms, markers.get(position)))

    def _note(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            self._files.active.note_aborted(aborted)


def _first_offset(batches: PositionedBatches, originals: Iterable[Original | None], end: int) -> int:
    """Of the first record of an append; `APART` when it is not one stretch of the log. What was not there
    before has been stored from `end` on.
    """
    starts: list[int] = []
    following: list[int] = []
    for (_, header), original in zip(batches, originals, strict=True):
        starts.append(end if original is None else original.first_offset)
        following.append(starts[-1] + header.last_offset_delta + 1)
        if original is None:
            end = following[-1]
    return starts[0] if starts[1:] == following[:-1] else APART
