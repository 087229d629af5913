"""What to fetch next, and how much of it. Pure.

The buffer's first half admits fetches and their answers share the second: so the buffer is never exceeded,
but for single batches that are larger than what was asked for. A partition asks for more as long as its
answers are full, and for less when they are not: on a long way what comes in one round trip is what is
asked for.

Where answers with little wait to be sent, as while a transaction is committed, the next is not asked for
before some are gone: what the source has by then comes as one chunk, and goes in one request. Else a
partition with a batch every few milliseconds would have a chunk for each, and five of them at a time is all
that its window lets through.

Where answers are worth waiting for, what has to be there is half of what a partition may be sent at most:
batches are sent whole, so nearly all of it may never come together. Partitions that brought nothing the last
time do not count: those with a heartbeat now and then would have the source wait for as much of theirs.

While several topics have more than a limit of bandwidth lets pass, they are asked for in the order in which
what comes of them would be sent (see `bandwidth.ahead`): brokers fill an answer in the order asked. While the
limit is not used up, as where what comes is left out, whoever was served last stands back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.client.fetch import PartitionPosition
from broker.types import TopicPartition
from mirrormaker.flow.buffer import Buffer
from mirrormaker.flow.exchange import FetchPlan, FlowConfig
from mirrormaker.flow.hooks import Hooks
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.room import NO_BOUND, FetchTurn, TopicRoom


class FetchPlanner:
    """Plans fetches of one machine."""

    def __init__(
        self,
        config: FlowConfig,
        hooks: Hooks,
        partitions: Mapping[TopicPartition, Partition],
        buffer: Buffer,
    ) -> None:
        self._config = config
        self._hooks = hooks
        self._partitions = partitions
        self._buffer = buffer

    def configure(self, config: FlowConfig) -> None:
        """Other bounds from now on."""
        self._config = config

    def plan(
        self,
        wanted: Iterable[Partition],
        fetchers: int,
        now_ms: int,
        wanted_bytes: int | None,
        busy: Collection[TopicPartition],
    ) -> FetchPlan:
        """What to ask of one source broker for `wanted`, all led by it, by one of so many fetches at a
        time. Those that are `busy` had something in the last answer.
        """
        config, pace = self._config, self._hooks.pace
        answer_bytes = min(wanted_bytes or config.fetch_bytes, config.buffer_bytes // (2 * max(fetchers, 1)))
        if self._buffer.size > config.buffer_bytes // 2:
            return FetchPlan(positions=[], answer_bytes=answer_bytes, pressed=True)
        room = NO_BOUND
        if pace is not None:
            room = pace.room(self._partitions.values(), max(fetchers, 1), now_ms)
            answer_bytes = room.bound_answer(answer_bytes)
        positions: list[PartitionPosition] = []
        turns: list[FetchTurn] = []
        bound = gathered = 0
        pressed = throttled = is_held = False
        topic: TopicRoom | None = None
        for partition in wanted:
            if not partition.may_fetch(now_ms):
                continue
            if self._has_enough(partition):
                pressed = True
                continue
            if self._waits_in_pieces(partition):
                is_held = True
                continue
            size = min(self._wanted_size(partition), answer_bytes)
            if room is not NO_BOUND and pace is not None:
                topic = room.of(partition, pace.kind(partition, now_ms))
                if topic.bytes is not None:
                    size = min(size, topic.bytes)
            throttled |= not size
            for admission in self._hooks.admissions:
                size = admission.fetch_bytes(partition, size, now_ms) if size else 0
            if size:
                positions.append(_position(partition, size))
                if topic is not None:
                    turns.append(topic.turn)
                bound += partition.is_bound
                if partition.source in busy:
                    gathered += min(self._piece_bytes(partition), size // 2)
        return FetchPlan(
            positions=_in_turn(positions, turns, by_topic=room.is_contended),
            answer_bytes=answer_bytes,
            pressed=pressed,
            throttled=throttled or is_held,
            is_contended=room.is_contended,
            gather_bytes=min(gathered, answer_bytes // 2),
            linger_ms=max(config.linger_ms, config.bound.linger_ms if bound else 0),
        )

    def _has_enough(self, partition: Partition) -> bool:
        """Whether it has no room for more, or, where its window holds it back, enough waits to be sent."""
        config, buffered = self._config, partition.buffered_bytes
        is_alone = len(self._partitions) == 1
        buffer_bytes = config.lone_buffer_bytes if is_alone else config.partition_buffer_bytes
        if buffered and buffered + partition.fetch_bytes > buffer_bytes:
            return True
        return partition.is_bound and partition.lanes[0].has_enough

    def _piece_bytes(self, partition: Partition) -> int:
        """What is worth waiting for of a partition."""
        config = self._config
        return max(config.gather_bytes, config.bound.answer_bytes if partition.is_bound else 0)

    def _wanted_size(self, partition: Partition) -> int:
        if partition.is_bound:
            return _whole_pieces(partition.fetch_bytes, self._config.bound.answer_bytes)
        return partition.fetch_bytes

    def _waits_in_pieces(self, partition: Partition) -> bool:
        """Whether all that waits would go in one request, and came in many answers. Toward a destination that
        takes one batch a request bigger answers alone make nothing bigger (see `window_watch`).
        """
        config = self._config
        return (
            config.chunk_batches_max > 1
            and partition.buffered_bytes < config.produce_bytes
            and any(lane.waits_in_pieces for lane in partition.lanes)
        )


def next_fetch_bytes(asked: int, came: int, config: FlowConfig) -> int:
    """What a partition asks for next, after an answer of `came` bytes to one for `asked`."""
    usual, full = config.fetch_partition_bytes, config.fetch_partition_bytes_full
    if full <= usual:
        return usual
    if came * 4 >= asked * 3:
        return max(usual, min(asked * 2, full))
    return max(usual, asked // 2) if came * 4 < asked else min(asked, full)


def _whole_pieces(size: int, piece: int) -> int:
    """The largest multiple of `piece` within `size`: no little rest of an answer is to be sent alone."""
    return size - size % piece if piece and size > piece else size


def _in_turn(
    positions: list[PartitionPosition], turns: Sequence[FetchTurn], *, by_topic: bool
) -> list[PartitionPosition]:
    """Old records last; `by_topic`: topics by their turns. All else stays in its order. Without any turns
    there is no limit.
    """
    if not turns:
        return positions
    keys = turns if by_topic else [turn[0] for turn in turns]
    return [positions[index] for index in sorted(range(len(positions)), key=keys.__getitem__)]


def _position(partition: Partition, size: int) -> PartitionPosition:
    return PartitionPosition(
        topic_partition=partition.source,
        offset=partition.position,
        max_bytes=size,
        leader_epoch=partition.leader_epoch,
    )
