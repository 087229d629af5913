"""What a route does to heartbeats on their way: each goes on with the route on its path, unless it has been
where that leads, or a newer one of its cluster has gone on already. So a circle ends them, and of a mesh's
many paths only the quickest is taken. Pure.

Once readers of the destination see one (`arrived`), it is heard of: so the way from where that was born is
open, though nothing else may come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from broker.records.record import Record
from mirrormaker.flow.heartbeats.beat import HOPS_MAX, Beat, Hop, decode_beat, encode_beat

CLUSTERS_MAX = 1_000
"""Of which heartbeats are told apart; those of more do not go on."""
PENDING_MAX = 1_000
AHEAD_MS = 10_000
"""What was born so much later than now was dated by a clock that is wrong: others go on though they are
older, or none would until that time has come.
"""


class _Passed(NamedTuple):
    """A heartbeat that went on last."""

    at_ms: int
    offset: int


class _Heard(NamedTuple):
    """A heartbeat that arrived."""

    beat: Beat
    arrived_ms: int


class HeartbeatPassage:
    """Of one route in this process: the `Steps` of heartbeats. All times since the epoch."""

    def __init__(self, source: str, destination: str, route: str, now_ms: Callable[[], int]) -> None:
        """The ids of the clusters at the ends."""
        self._source = source
        self._destination = destination
        self._route = route
        self._now_ms = now_ms
        self._passed: dict[str, _Passed] = {}
        self._under_way: deque[tuple[int, Beat]] = deque(maxlen=PENDING_MAX)
        self._heard: dict[str, _Heard] = {}

    def apply(self, record: Record) -> Sequence[tuple[int, Record]]:
        """See `intake.Steps`; there is one lane."""
        beat = decode_beat(record.value)
        if beat is None or not self._goes_on(beat, record.offset):
            return ()
        self._passed[beat.cluster] = _Passed(beat.at_ms, record.offset)
        carried = beat.via(Hop(cluster=self._source, route=self._route, at_ms=self._now_ms()))
        while self._under_way and self._under_way[-1][0] >= record.offset:
            self._under_way.pop()  # it is fetched once more
        self._under_way.append((record.offset, carried))
        return ((0, record._replace(value=encode_beat(carried))),)

    def _goes_on(self, beat: Beat, offset: int) -> bool:
        if self._destination in beat.clusters or len(beat.path) >= HOPS_MAX:
            return False
        passed = self._passed.get(beat.cluster)
        if passed is None:
            return len(self._passed) < CLUSTERS_MAX
        if passed.at_ms > self._now_ms() + AHEAD_MS:
            return True
        return beat.at_ms > passed.at_ms or offset == passed.offset

    def arrived(self, next_offset: int) -> None:
        """Readers of the destination see what came before this offset of the source."""
        now_ms = self._now_ms()
        while self._under_way and self._under_way[0][0] < next_offset:
            _, beat = self._under_way.popleft()
            self._heard[beat.cluster] = _Heard(beat, now_ms)

    def describe(self) -> dict[str, Any]:
        """By the id of the cluster where it was born, the last one that arrived, as plain data."""
        return {
            cluster: {
                "name": heard.beat.name,
                "path": [hop.route for hop in heard.beat.path],
                "born_ms": heard.beat.at_ms,
                "arrived_ms": heard.arrived_ms,
            }
            for cluster, heard in self._heard.items()
        }
