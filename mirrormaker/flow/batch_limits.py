"""How large a batch a topic of the destination takes: what it is set to, and what refusals taught. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.errors import ErrorCode
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.hooks import Remedies
from mirrormaker.flow.intake import UNBOUNDED, BatchLimit
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.remedies import TOO_LARGE_CODES, Remedy


class BatchLimits:
    """See the module."""

    def __init__(self) -> None:
        self._configured: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        """No batch that is larger is taken: true until `doubt`."""
        self._halved: dict[str, int] = {}
        """Half of what was refused last, where it could be split."""

    def of(self, topics: Collection[str]) -> BatchLimit:
        """What all of these take."""
        bytes_max = min(_least(self._configured, topics), _least(self._refused, topics))
        return BatchLimit(bytes_max, min(bytes_max, _least(self._halved, topics)))

    def configure(self, topic: str, size_max: int) -> bool:
        """The topic's `max.message.bytes`; when that has changed, batches are split by it again.
        Returns whether it is more than was known.
        """
        known = self._configured.get(topic)
        if known != size_max:
            self._configured[topic] = size_max
            self._halved.pop(topic, None)
        return known is None or size_max > known

    def learn(self, topic: str, chunk: Chunk) -> None:
        """The topic refused a batch as too large: it will not pass, halves may."""
        self._refused[topic] = min(chunk.size - 1, self._refused.get(topic, UNBOUNDED))
        if chunk.count > 1:
            self._halved[topic] = chunk.size // 2

    def doubt(self) -> None:
        """Time has passed: what was refused may be taken now. Batches are still split, as refusals cost."""
        self._refused.clear()


def _least(limits: Mapping[str, int], topics: Iterable[str]) -> int:
    return min((limits[topic] for topic in topics if topic in limits), default=UNBOUNDED)


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
