"""How large a batch a topic of the destination takes: what it is set to, and what refusals taught. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from broker.errors import ErrorCode
from mirrormaker.flow.chunk import Chunk
from mirrormaker.flow.hooks import Remedies
from mirrormaker.flow.intake import UNBOUNDED, BatchLimit
from mirrormaker.flow.lane import Lane
from mirrormaker.flow.remedies import TOO_LARGE_CODES, Remedy
from mirrormaker.plan.settings import FENCE

CLOSED_BYTES = int(FENCE[1])
LOOKS = 2
"""So often a topic is looked at, and what it refused tried again, before that is too large."""


class Refusal(NamedTuple):
    """A batch that a topic refused as too large."""

    size: int
    records: int


class BatchLimits:
    """See the module.

    A batch that is refused though it is not larger than its topic is known to take is a reason to look, not
    to split it: a switch may have closed the topic to producers for a while (see `plan.settings.FENCE`), or
    its limit may have been lowered. Only where looking again and again finds no such reason is it too large
    all the same, as where the destination compresses what it gets once more.
    """

    def __init__(self, on_suspect: Callable[[], None] = lambda: None) -> None:
        """`on_suspect` is called when a topic of `suspects` is to be looked at."""
        self._on_suspect = on_suspect
        self._configured: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        """No batch that is larger is taken: true until `doubt`."""
        self._halved: dict[str, int] = {}
        """Half of what was refused last, where it could be split."""
        self._suspects: dict[str, Refusal] = {}
        self._unexplained: dict[str, int] = {}
        """How often in a row topics were looked at that had refused a batch without a reason."""
        self._closed: set[str] = set()

    @property
    def suspects(self) -> Collection[str]:
        """Topics that have refused a batch since they were looked at last."""
        return self._suspects.keys()

    @property
    def puzzles(self) -> bool:
        """Whether a topic has refused again what it says it takes: not all nodes may know yet how it is set,
        so it is to be looked at somewhat later.
        """
        return any(self._unexplained.get(topic) == 1 for topic in self._suspects)

    def keep(self, topics: Collection[str]) -> None:
        """Nothing is sent to other topics any more."""
        for topic in self._suspects.keys() - set(topics):
            del self._suspects[topic]

    def is_closed(self, topic: str) -> bool:
        """Whether a switch had closed the topic to producers when it was looked at last."""
        return topic in self._closed

    def of(self, topics: Collection[str]) -> BatchLimit:
        """What all of these take."""
        bytes_max = min(_least(self._configured, topics), _least(self._refused, topics))
        return BatchLimit(bytes_max, min(bytes_max, _least(self._halved, topics)))

    def configure(self, topic: str, size_max: int | None) -> bool:
        """The topic was looked at: its `max.message.bytes`, None where the cluster does not tell; when that
        has changed, batches are split by it again. Returns whether what waits for it is to be tried again.
        """
        suspect = self._suspects.pop(topic, None)
        if size_max == CLOSED_BYTES:
            self._closed.add(topic)
            self._unexplained.pop(topic, None)
            return False
        was_closed = topic in self._closed
        self._closed.discard(topic)
        is_larger = size_max is not None and self._set(topic, size_max)
        if suspect is None or was_closed:
            self._unexplained.pop(topic, None)
        elif size_max is None or self._is_certain(topic, suspect, size_max):
            self._learn(topic, suspect)
        return is_larger or was_closed or suspect is not None

    def _is_certain(self, topic: str, suspect: Refusal, size_max: int) -> bool:
        """Whether no reason for the refusal is to be found any more."""
        if suspect.size > size_max:
            return False
        self._unexplained[topic] = self._unexplained.get(topic, 0) + 1
        return self._unexplained[topic] > LOOKS

    def _set(self, topic: str, size_max: int) -> bool:
        """Returns whether it is more than was known."""
        known = self._configured.get(topic)
        if known != size_max:
            self._configured[topic] = size_max
            self._halved.pop(topic, None)
        return known is None or size_max > known

    def refuse(self, topic: str, chunk: Chunk) -> bool:
        """The topic refused a batch as too large. Returns whether it is known why: it will not pass, halves
        may; else it waits for `configure`.
        """
        refusal = Refusal(chunk.size, chunk.count)
        if topic not in self._closed and chunk.size > self._configured.get(topic, UNBOUNDED):
            self._learn(topic, refusal)
            return True
        self._suspects[topic] = refusal
        self._on_suspect()
        return False

    def _learn(self, topic: str, refusal: Refusal) -> None:
        self._refused[topic] = min(refusal.size - 1, self._refused.get(topic, UNBOUNDED))
        if refusal.records > 1:
            self._halved[topic] = refusal.size // 2

    def doubt(self) -> None:
        """Time has passed: what was refused may be taken now. Batches are still split, as refusals cost."""
        self._refused.clear()


def _least(limits: Mapping[str, int], topics: Iterable[str]) -> int:
    return min((limits[topic] for topic in topics if topic in limits), default=UNBOUNDED)


class SplittingRemedies:
    """A batch that is known to be too large is fetched again, to be split, or to meet the policy for such;
    one of which that is not known waits until its topic has been looked at.
    """

    def __init__(self, limits: BatchLimits, others: Remedies) -> None:
        self._limits = limits
        self._others = others

    def remedy(self, lane: Lane, chunk: Chunk, code: ErrorCode) -> Remedy:
        """See `Remedies`."""
        remedy = self._others.remedy(lane, chunk, code)
        if code in TOO_LARGE_CODES and chunk.batches == 1:
            is_known = self._limits.refuse(lane.destination.topic, chunk)
            return Remedy.FETCH_AGAIN if is_known and remedy is Remedy.PAUSE else remedy
        return remedy
