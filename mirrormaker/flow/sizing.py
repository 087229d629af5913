"""Sizes and depths of a route from what its ways are like: what is under way to a destination broker follows
round trip times speed, and so do requests, answers and the number of fetches at a time. Pure.

What the file says is taken as it is; the rest is chosen:

- Under way to one broker: twice what passes in a round trip, so that the speed found can double from one
  look to the next; where that is little, what passes in half a second, at most `IN_FLIGHT_USUAL`; never more
  than passes in a second, since new records would wait behind it. All of it lies in the route's buffer.
- A lane has at most five chunks under way (see `lane`): where it has to fill the way alone, chunks are a
  fifth of what is to be under way. Under a limit they are a tenth of what passes in a second: others wait
  for no more than that.
- A partition that its window of five chunks holds back (`window_watch`) has small batches gathered, where the
  destination takes one batch a request and the route may decode; its source may wait with answers for a fifth
  of the round trip: so much goes into each place of the window.
- Requests: one may leave every `REQUEST_SPACING_MS` of the round trip.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.flow.exchange import FlowConfig, Gathering
from mirrormaker.flow.lane import BATCHES_REMEMBERED
from mirrormaker.topology.model import BatchSpec, CopyMode, Resources

LONG_MS = 5
"""From this round trip on, a way counts as long."""
FAR_MS = 40
"""From this on more than two fetches at a time are made of each source broker."""
IN_FLIGHT_USUAL = 5 << 20
IN_FLIGHT_MIN = 256 << 10
REQUESTS_USUAL, REQUESTS_MAX = 5, 100
REQUEST_SPACING_MS = 5
FETCH_BYTES = 8 << 20
FETCH_PARTITION_BYTES = 1 << 20
PARTITION_BUFFER_BYTES = 8 << 20
PRODUCE_BYTES, PRODUCE_BYTES_MIN, PRODUCE_BYTES_MAX = 1 << 20, 32 << 10, 16 << 20
PIECE_BYTES = 15 << 16
"""Batches that are gathered without being asked to come to this: a little less than destinations take, since
offsets in a bigger batch take more room.
"""
_NOT_GATHERED = BatchSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What the ways of a route are like, as far as known."""

    source_ms: float = 0.0
    """Round trip to the source."""
    destination_ms: float = 0.0
    delivery_rate: float | None = None
    """Bytes a second that the fastest destination broker took."""
    limit: float | None = None
    """Bytes a second that may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """How a source broker is asked."""

    lanes: int = 1
    """Fetches at a time, each of other partitions."""
    answer_bytes: int = FETCH_BYTES
    """To begin with."""
    answer_bytes_max: int = FETCH_BYTES
    """The same where it is not to be changed."""


def flow_config(
    resources: Resources,
    ways: Ways,
    *,
    chunk_batches_max: int,
    copy: CopyMode = CopyMode.AUTO,
    batch: BatchSpec = _NOT_GATHERED,
) -> FlowConfig:
    """Bounds of the machine."""
    in_flight = in_flight_bytes(resources, ways)
    produce_bytes = resources.produce_bytes or _produce_bytes(in_flight, ways)
    piece_bytes = min(PIECE_BYTES, produce_bytes)
    fetch_partition_bytes = resources.fetch_partition_bytes or max(
        FETCH_PARTITION_BYTES, min(batch.bytes or 0, resources.fetch_bytes or FETCH_BYTES)
    )
    built_batch_bytes = batch.bytes or resources.produce_bytes or PRODUCE_BYTES
    is_far = max(ways.source_ms, ways.destination_ms) >= LONG_MS or in_flight > IN_FLIGHT_USUAL
    return FlowConfig(
        buffer_bytes=resources.buffer_bytes,
        partition_buffer_bytes=resources.partition_buffer_bytes
        or min(
            resources.buffer_bytes,
            max(PARTITION_BUFFER_BYTES, resources.buffer_bytes // 2) if is_far else PARTITION_BUFFER_BYTES,
        ),
        lone_buffer_bytes=resources.partition_buffer_bytes
        or (resources.buffer_bytes if is_far else min(resources.buffer_bytes, PARTITION_BUFFER_BYTES)),
        fetch_bytes=resources.fetch_bytes or FETCH_BYTES,
        fetch_partition_bytes=fetch_partition_bytes,
        fetch_partition_bytes_full=resources.buffer_bytes // 2
        if resources.fetch_partition_bytes is None and ways.source_ms >= LONG_MS
        else fetch_partition_bytes,
        produce_bytes=produce_bytes,
        built_batch_bytes=built_batch_bytes,
        requests_in_flight=resources.requests_in_flight
        or max(REQUESTS_USUAL, min(REQUESTS_MAX, int(ways.destination_ms / REQUEST_SPACING_MS))),
        in_flight_bytes=in_flight,
        chunk_batches_max=chunk_batches_max,
        deep=copy is CopyMode.DEEP,
        gather_bytes=built_batch_bytes if batch.bytes or batch.linger_ms else 0,
        linger_ms=batch.linger_ms or 0,
        bound=Gathering()
        if batch != _NOT_GATHERED
        else Gathering(
            batch_bytes=0 if chunk_batches_max > 1 or copy is CopyMode.SHALLOW else piece_bytes,
            answer_bytes=piece_bytes,
            linger_ms=round(ways.destination_ms / BATCHES_REMEMBERED),
        ),
    )


def in_flight_bytes(resources: Resources, ways: Ways) -> int:
    """What may be under way to one destination broker."""
    if resources.requests_in_flight is not None:
        return resources.requests_in_flight * (resources.produce_bytes or PRODUCE_BYTES)
    if ways.delivery_rate is None:
        return min(IN_FLIGHT_USUAL, resources.buffer_bytes)
    rate = ways.delivery_rate
    lowest = min(IN_FLIGHT_USUAL, rate / 2)
    wanted = min(max(2 * rate * ways.destination_ms / 1000, lowest), max(rate, lowest))
    return int(min(max(wanted, IN_FLIGHT_MIN), resources.buffer_bytes))


def fetching(resources: Resources, ways: Ways) -> Fetching:
    """How the source is asked."""
    lanes = 1 if ways.source_ms < LONG_MS else 2 if ways.source_ms < FAR_MS else 3
    if resources.fetch_bytes is not None:
        return Fetching(
            lanes=lanes, answer_bytes=resources.fetch_bytes, answer_bytes_max=resources.fetch_bytes
        )
    largest = FETCH_BYTES if ways.source_ms < LONG_MS else max(FETCH_BYTES, resources.buffer_bytes // 2)
    return Fetching(lanes=lanes, answer_bytes_max=largest)


def _produce_bytes(in_flight: int, ways: Ways) -> int:
    size = max(PRODUCE_BYTES, min(-(-in_flight // 5), PRODUCE_BYTES_MAX))
    if ways.limit is not None:
        size = min(size, max(int(ways.limit / 10), PRODUCE_BYTES_MIN))
    return size
