"""How large a batch a topic of the destination takes: what it is set to, and what refusals taught. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import ErrorCode
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.hooks import Remedies
from mirrormaker.flow.intake import UNBOUNDED
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.remedies import TOO_LARGE_CODES, Remedy


class BatchLimits:
    """See the module."""

    def __init__(self) -> None:
        self._configured: dict[str, int] = {}
        self._learnt: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        """Learnt from single records: true until `doubt`."""

    def of(self, topics: Iterable[str]) -> int:
        """What all of these take."""
        limits = (
            limit
            for topic in topics
            for known in (self._configured, self._learnt, self._refused)
            if (limit := known.get(topic))
        )
        return min(limits, default=UNBOUNDED)

    def configure(self, topic: str, size_max: int) -> bool:
        """The topic's `max.message.bytes`; when that has changed, what was learnt before counts no more.
        Returns whether it is more than was known.
        """
        known = self._configured.get(topic)
        if known != size_max:
            self._configured[topic] = size_max
            self._learnt.pop(topic, None)
        return known is None or size_max > known

    def learn(self, topic: str, chunk: Chunk) -> None:
        """The topic refused a batch as too large: halves may pass; a single record will not."""
        if chunk.count > 1:
            self._learnt[topic] = chunk.size // 2
        else:
            self._refused[topic] = chunk.size - 1

    def doubt(self) -> None:
        """Time has passed: what was refused as a single record may be taken now."""
        self._refused.clear()


class SplittingRemedies:
    """A batch that is too large is fetched again, to be split, or to meet the policy for such."""

    def __init__(self, limits: BatchLimits, others: Remedies) -> None:
        self._limits = limits
        self._others = others

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """See `Remedies`."""
        remedy = self._others.remedy(lane, chunk, code)
        if code in TOO_LARGE_CODES and chunk.batches == 1:
            self._limits.learn(lane.destination.topic, chunk)
            return Remedy.FETCH_AGAIN if remedy is Remedy.PAUSE else remedy
        return remedy
