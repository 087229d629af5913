"""How far lanes have come with what was sent, for whoever stores positions. Pure.

What has been sent and is not acknowledged together with all before it is of one origin at any time: nothing
of another goes before all of that is answered (see `lane`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.lane import Lane, LaneState
from mirrormaker.flow.partition import Partition
from mirrormaker.flow.transaction_steps import LanePositions

BEHIND_FROM = 3
"""So many times what is under way is far more."""


def is_behind(lane: Lane) -> bool:
    """Whether its source has more than was fetched, or far more waits to be sent than is under way: pieces
    that come while others are under way are no sign of that.
    """
    partition = lane.partition
    if lane.state is not LaneState.COPYING or not lane.queue:
        return False
    if partition.position < partition.source_end:
        return True
    sizes = [chunk.size for chunk in lane.queue]
    return sum(sizes[lane.sent :]) > BEHIND_FROM * sum(sizes[: lane.sent]) > 0


def has_work(lane: Lane) -> bool:
    """Whether it has something to send, and could."""
    return bool(lane.queue) and lane.leader is not None and lane.state is not LaneState.STOPPING


def sent(lane: Lane) -> Iterator[Chunk]:
    """What was sent and is not acknowledged together with all before it."""
    return takewhile(lambda chunk: chunk.base_sequence >= 0, lane.queue)


def sent_to(partition: Partition) -> LanePositions:
    """Where all that was sent leads to."""
    return tuple(lane.sent_to for lane in partition.lanes)


def acknowledged(partition: Partition) -> LanePositions:
    """Where all that the destination has leads to."""
    return tuple(lane.acknowledged for lane in partition.lanes)


def is_settled(lane: Lane) -> bool:
    """Whether all that the destination has of it, and nothing else, is before its acknowledged position."""
    return not lane.in_flight and not any(chunk.maybe_written for chunk in sent(lane))


def furthest(positions: LanePositions, floors: Sequence[int]) -> LanePositions:
    """By lane the further of both; no floors: the positions."""
    return tuple(map(max, positions, floors)) if floors else positions
