"""From the bytes of a fetch answer to chunks ready for sending. Pure.

Batches pass as they are wherever the format and the route allow it (`runs`). The others go deep (`deep_way`):
decoded, and built anew. Control batches and batches of aborted transactions are dropped; the position moves
past them all the same. Per plain batch this costs one look at its header; record bytes are neither read nor
copied.

What goes deep takes time: after `turn_bytes` of it the walk stops, and what is left is for another turn, with
what is still open of aborted transactions. A batch or record that can go no way at all is an obstacle (see
`obstacles`): either something takes its place, or everything before it is taken, and nothing from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from broker.client.aborted import AbortedBatches, AbortedTransaction
from broker.errors import CorruptRecordsError
from broker.records.batch import MAGIC_POSITION, BatchHeader, peek_size, read_header
from mirrormaker.flow.chunk import DeepReason, Frame
from mirrormaker.flow.deep_way import DeepWay
from mirrormaker.flow.intake import NO_FLOORS, Floors, Intake, IntakeConfig, Origins, OriginUnknownError
from mirrormaker.flow.obstacles import Obstacle, ObstacleMetError
from mirrormaker.flow.packing import join_built
from mirrormaker.flow.returned import Span
from mirrormaker.flow.runs import Runs
from mirrormaker.flow.trouble import TroubleKind

_NO_END = 1 << 63


def take_in(
    records: bytearray | memoryview,
    position: int,
    config: IntakeConfig,
    frame: Frame,
    aborted: Sequence[AbortedTransaction] = (),
    floors: Floors = NO_FLOORS,
) -> Intake:
    """Cut the answer for a fetch at `position` into chunks. A torn batch at the end is left for the next."""
    obstacle: Obstacle | None = None
    while True:
        cutter = _Cutter(memoryview(records), position, config, frame, aborted, floors, obstacle)
        try:
            cutter.run()
        except ObstacleMetError as error:
            obstacle = error.obstacle  # each lies before the one that was met before
        else:
            return cutter.intake


def _ask_for_all(records: memoryview, origins: Origins | None) -> None:
    """Have every unknown origin in the answer noticed, so that all are found out together."""
    assert origins is not None
    at = 0
    while (size := peek_size(records, at)) is not None and size <= len(records) - at:
        if records[at + MAGIC_POSITION] >= 2:
            with suppress(OriginUnknownError, CorruptRecordsError):
                origins.origin_of(read_header(records, at))
        at += size


class _Cutter:
    """One walk over an answer."""

    def __init__(
        self,
        records: memoryview,
        position: int,
        config: IntakeConfig,
        frame: Frame,
        aborted: Sequence[AbortedTransaction],
        floors: Floors,
        obstacle: Obstacle | None,
    ) -> None:
        """`obstacle`: one that a walk before has met; nothing is taken from there on."""
        self.intake = intake = Intake(position=position)
        self._records = records
        self._config = config
        self._aborted = AbortedBatches(aborted)
        self._obstacle = obstacle
        self._until = _NO_END if obstacle is None else obstacle.offset
        self._is_deep = config.deep or config.steps is not None
        self._floors_of = floors
        self._small: list[tuple[int, BatchHeader]] = []
        """Batches in a row, with where they lie, that could pass and may be gathered."""
        self._small_size = 0
        self._deep: DeepWay | None = None
        """Made for the first batch that needs it: most answers have none."""
        self._runs = Runs(
            records,
            frame,
            intake.chunks,
            chunk_bytes=config.chunk_bytes,
            batches_max=config.chunk_batches_max,
        )
        self._set_origin(0)

    def _set_origin(self, origin: int) -> None:
        """Records of this origin come next."""
        self._runs.origin = origin
        self._floors = self._floors_of(origin)
        if self._deep is not None:
            self._deep.floors = self._floors
        self._floor_max = max(self._floors, default=0)
        """Some lanes have records before this, others lack them."""
        config = self._config
        is_looked_at = (
            self._is_deep
            or config.gather_bytes
            or config.codec is not None
            or config.origins is not None
            or self._floors
            or self._obstacle is not None
        )
        self._plain_size_max = 0 if is_looked_at else min(config.batch_bytes_max, config.split_bytes)
        """Plain batches up to this size need no closer look; 0: all do."""

    def run(self) -> None:
        """Walk the batches. Raises ObstacleMetError at one that was not known of."""
        for part in (self._walk, self._settle_small):
            try:
                part()
            except CorruptRecordsError as error:
                self.intake.damage = error.message
            except OriginUnknownError:
                self.intake.awaits_origins = True
                _ask_for_all(self._records, self._config.origins)
        self._runs.flush()
        if self._deep is not None:
            self._deep.end()
            self.intake.effort = self._deep.effort
            config = self._config
            if config.chunk_batches_max > 1:
                chunks = join_built(self.intake.chunks, config.chunk_bytes, config.chunk_batches_max)
                self.intake.chunks[:] = chunks

    @property
    def _deep_way(self) -> DeepWay:
        if self._deep is None:
            self._deep = DeepWay(self.intake, self._config, self._until)
            self._deep.floors = self._floors
            self._runs.on_begin = self._deep.settle
        return self._deep

    # ---- batch by batch

    def _walk(self) -> None:
        """Raises CorruptRecordsError at the first that cannot be read."""
        records, end, at = self._records, len(self._records), 0
        origins, turn_bytes = self._config.origins, self._config.turn_bytes
        while True:
            if self._plain_size_max:
                at = self._walk_plain(at, self._plain_size_max)
            size = peek_size(records, at)
            if size is None or size > end - at:
                return
            if self._deep is not None and self._deep.effort >= turn_bytes:
                self._leave(at)
                return
            if records[at + MAGIC_POSITION] < 2:
                self._take_legacy(records[at : at + size])
            else:
                header = read_header(records, at)
                if origins is None or header.is_control or self._goes_on(header, origins):
                    self._take(at, size, header)
            if self._deep is not None and self._deep.cut_at is not None:
                self.intake.position = self._deep.cut_at
                self._leave(at)
                return
            if self.intake.position >= self._until:
                self.intake.obstacle = self._obstacle
                return
            at += size

    def _leave(self, at: int) -> None:
        """What lies there and behind is for another turn."""
        self.intake.left_at, self.intake.aborted_left = at, self._aborted.rest()

    def _walk_plain(self, at: int, size_max: int) -> int:
        """Take in what is plain; returns where the walk goes on."""
        reached = self._runs.walk(at, self.intake.position, size_max)
        if reached > at:
            self.intake.position, self.intake.leader_epoch = self._runs.next_offset, self._runs.leader_epoch
        return reached

    def _take(self, at: int, size: int, header: BatchHeader) -> None:
        if header.next_offset <= self.intake.position:
            self._aborted.includes(header)  # a marker among what is passed over counts
            self._settle()
            return
        if self._is_dropped(header):
            self._settle()
        elif (reason := self._deep_reason(size, header)) is None:
            self._take_as_it_is(at, size, header)
        else:
            self._settle()
            if max(header.base_offset, self.intake.position) < self._until:
                self._take_otherwise(at, size, header, reason)
        self.intake.position = min(header.next_offset, self._until)
        self.intake.leader_epoch = header.leader_epoch

    def _goes_on(self, header: BatchHeader, origins: Origins) -> bool:
        """Whether its origin lets the batch pass; a batch of another origin than the run's ends that."""
        origin = origins.origin_of(header)
        if origin != self._runs.origin or origin is None:
            self._settle()
        if origin is not None:
            if origin != self._runs.origin:
                self._set_origin(origin)
            return True
        if header.next_offset > self.intake.position:
            self.intake.returned_batches += 1
            if origins.came_back(header):
                first = max(header.base_offset, self.intake.position)
                self.intake.returned.append(Span(first, header.next_offset))
            self.intake.position = header.next_offset
            self.intake.leader_epoch = header.leader_epoch
        return False

    def _is_dropped(self, header: BatchHeader) -> bool:
        is_aborted = self._aborted.includes(header)
        if header.is_control:
            self.intake.control_batches += 1
        elif is_aborted:
            self.intake.aborted_batches += 1
        return header.is_control or is_aborted or header.record_count == 0

    def _deep_reason(self, size: int, header: BatchHeader) -> DeepReason | None:
        config = self._config
        if header.is_log_append_time:
            return DeepReason.LOG_APPEND_TIME
        if header.has_delete_horizon:
            return DeepReason.DELETE_HORIZON
        if header.record_count != header.last_offset_delta + 1:
            return DeepReason.COMPACTED
        if header.base_offset < self.intake.position or (
            header.base_offset < self._floor_max and not config.is_shallow
        ):
            return DeepReason.RESUMED_INSIDE
        if self._is_deep:
            return config.deep_reason
        can_split = header.record_count > 1 and not config.is_shallow
        size_max = min(config.batch_bytes_max, config.split_bytes) if can_split else config.batch_bytes_max
        if size > size_max or header.next_offset > self._until:
            return DeepReason.OVERSIZE
        if config.codec is not None and header.codec is not config.codec:
            return DeepReason.CODEC
        return None

    # ---- batches that pass as they are

    def _take_as_it_is(self, at: int, size: int, header: BatchHeader) -> None:
        """Let the batch join the run, or those that may be gathered."""
        if self._floors and header.next_offset <= self._floors[0]:
            self._settle()
            return
        gather_bytes = self._config.gather_bytes
        if not gather_bytes:
            self._runs.append(at, header)
            return
        small = self._small
        if small and (
            self._small_size + size > gather_bytes
            or small[-1][1].codec is not header.codec
            or small[-1][1].next_offset != header.base_offset
        ):
            self._settle_small()
        self._small.append((at, header))
        self._small_size += size

    def _settle(self) -> None:
        """What comes next does not lie right behind what is at hand, or must not join it."""
        if self._small:
            self._settle_small()
        self._runs.flush()

    def _settle_small(self) -> None:
        """Gather what can be; a batch that found no other, or had to be altered for that, passes as it is."""
        small, self._small, self._small_size = self._small, [], 0
        if len(small) == 1:
            ((at, header),) = small
            self._runs.append(at, header)
            return
        position = self.intake.position
        for at, header in small:
            self.intake.position = header.base_offset  # where it stays, should the batch be damaged
            self._runs.flush()
            if not self._deep_way.gather(self._records[at : at + header.size], header, self._runs.origin):
                self._deep_way.settle()
                self._runs.append(at, header)
        self.intake.position = position
        self._deep_way.settle()

    # ---- batches that cannot

    def _take_otherwise(self, at: int, size: int, header: BatchHeader, reason: DeepReason) -> None:
        if not self._config.is_shallow:
            self._take_deep(at, size, header, reason)
            return
        is_one_record = reason is DeepReason.OVERSIZE and header.record_count == 1
        kind = TroubleKind.OVERSIZE if is_one_record else TroubleKind.NOT_SHALLOW
        problem = f"{reason.value}: offsets {header.base_offset} to {header.last_offset}, {size} bytes"
        self._deep_way.leave_out(kind, header.last_offset, header.max_timestamp, problem)

    def _take_deep(self, at: int, size: int, header: BatchHeader, reason: DeepReason) -> None:
        """Raises CorruptRecordsError."""
        self._runs.flush()
        self._deep_way.take(self._records[at : at + size], header, reason, self._runs.origin)

    def _take_legacy(self, entry: memoryview) -> None:
        self._settle()
        self._set_origin(0)
        self._deep_way.take_legacy(entry)
