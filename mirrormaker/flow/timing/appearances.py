"""Partitions that came to the source while a route looked which topics there are, and until when they were
not there.

A record of such a partition came after the last look that did not find the partition, whatever its producer
says of its time. Only where nothing of it was copied before: who has a position there knew it from earlier,
and saw less of the cluster since. What a look has found once is known from then on, also when it is deleted
and made anew, or may not be seen for a while. Another cluster has to be looked at anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.clock import Clock
from broker.types import TopicPartition
from mirrormaker.flow.lag import EndHistory


class Appearances:
    """Of one route in this process; times are those of the clock that never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cluster_id: str | None = None
        self._asked_ms = 0
        self._looked_ms: int | None = None
        """When the last look began that came to its end."""
        self._counts: dict[str, int] = {}
        """How many partitions topics had at most."""
        self._absent_ms: dict[TopicPartition, int] = {}

    def look_begins(self) -> None:
        """The source is about to be asked for all of its topics."""
        self._asked_ms = self._clock.monotonic_ms()

    def looked(self, cluster_id: str | None, counts: Mapping[str, int]) -> None:
        """It has answered, with so many partitions of each topic."""
        if cluster_id != self._cluster_id:
            self._cluster_id, self._looked_ms = cluster_id, None
            self._counts.clear()
            self._absent_ms.clear()
        for topic, count in counts.items():
            known = self._counts.get(topic, 0)
            if self._looked_ms is not None:
                came = (TopicPartition(topic, number) for number in range(known, count))
                self._absent_ms.update(dict.fromkeys(came, self._looked_ms))
            self._counts[topic] = max(known, count)
        self._looked_ms = self._asked_ms

    def begin_history(self, source: TopicPartition, position: int) -> EndHistory:
        """Of a partition that is copied from `position` on."""
        history = EndHistory()
        absent_ms = self._absent_until_ms(source)
        if absent_ms is not None and position == 0:
            history.observe(0, absent_ms)
        return history

    def _absent_until_ms(self, source: TopicPartition) -> int | None:
        """None: it was there at the first look. Another process may find one first."""
        if source.partition >= self._counts.get(source.topic, 0):
            return self._looked_ms
        return self._absent_ms.get(source)
