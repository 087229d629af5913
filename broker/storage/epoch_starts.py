"""Leader epochs by what the batches of a log say, for one whose `leader-epoch-checkpoint` was lost.

Without it a follower that asks where an epoch ended would be told wrongly, and cut what it may keep or keep
what it must cut. Epochs never descend within a log. So of a segment that begins in the same epoch as the next
one only the first header is read; the others are walked.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import CorruptRecordsError
from broker.storage.checkpoints import EpochStart
from broker.storage.leader_epochs import NO_EPOCH
from broker.storage.segment import Segment
from broker.storage.segment_end import last_header


def epoch_starts(segments: Sequence[Segment]) -> list[EpochStart]:
    """Where the epochs of the segments' batches begin. Of a damaged segment what lies before the damage
    counts. Raises StorageError.
    """
    filled = [segment for segment in segments if segment.size]
    firsts = [_first_epoch(segment) for segment in filled]
    found: list[EpochStart] = []
    latest = NO_EPOCH
    for segment, first, following in zip(filled, firsts, [*firsts, None][1:], strict=True):
        if first == following == latest:
            continue
        try:
            for _, header in segment.headers(0):
                if header.leader_epoch > latest:
                    latest = header.leader_epoch
                    found.append(EpochStart(latest, header.base_offset))
                if latest == following:
                    break
        except CorruptRecordsError:
            continue
    return found


def last_epoch(segments: Sequence[Segment]) -> int:
    """The epoch of the last batch; NO_EPOCH without one, or when it cannot be read. Raises StorageError."""
    newest = next((segment for segment in reversed(segments) if segment.size), None)
    last = None if newest is None else last_header(newest)
    return NO_EPOCH if last is None else last.leader_epoch


def _first_epoch(segment: Segment) -> int:
    """The epoch of the first batch, NO_EPOCH when it cannot be read."""
    try:
        for _, header in segment.headers(0):
            return header.leader_epoch
    except CorruptRecordsError:
        pass
    return NO_EPOCH
