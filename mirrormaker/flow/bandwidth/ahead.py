"""How far ahead of its limit a route fetches, by topic. Pure.

New records and old ones have room of their own. Of what is left of it any topic may have all, so that none of
the limit is lost where others have nothing. Which topics come first in a fetch, the tree of shares says (see
`shares`): those of which the next piece would be sent first. So they are fetched in the ratio in which they
are sent, however many partitions they have. A topic that holds less than its part of the room may fetch up to
it even where others hold all, which other fetches at the time may have brought, from other brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirrormaker.flow.room import TopicKey

AHEAD_BYTES_MIN = 64 << 10
LITTLE = 4
"""Less than this part of what may be ahead is not worth a fetch."""


@dataclass(slots=True)
class TopicDemand:
    """What a topic holds and wants, of one kind."""

    buffered: int = 0
    partitions: int = 0
    has_more: bool = False
    """The source is known to have more of it."""

    @property
    def is_active(self) -> bool:
        """Whether it has a part of the room."""
        return self.has_more or self.buffered > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Of the room that topics share, for one of several fetches at a time."""

    any_topic: int
    parts: Mapping[TopicKey, int]
    """What each may fetch in any case."""

    answer_bytes: int
    """For all together."""

    def of(self, key: TopicKey) -> int:
        """For one topic."""
        return max(self.any_topic, self.parts.get(key, 0))


def ahead_bytes(limit: float, ahead_ms: int) -> int:
    """How much may be fetched ahead of a limit."""
    return max(int(limit * ahead_ms / 1000), AHEAD_BYTES_MIN) if limit else 0


def room_left(ahead: int, topics: Mapping[TopicKey, TopicDemand], fetchers: int) -> Left:
    """Of room for so many bytes, given what its topics hold; divided among so many fetches at a time."""
    if not topics:
        return Left(any_topic=0, parts={}, answer_bytes=0)
    held = sum(topic.buffered for topic in topics.values())
    any_topic = _left(ahead, held) // fetchers
    parts = _parts(ahead, topics, fetchers) if fetchers > 1 and held < 2 * ahead else {}
    wanted = sum(part for key, part in parts.items() if topics[key].has_more)
    if wanted <= ahead // (LITTLE * fetchers):
        return Left(any_topic=any_topic, parts={}, answer_bytes=any_topic)
    return Left(any_topic=any_topic, parts=parts, answer_bytes=max(any_topic, min(wanted, ahead // fetchers)))


def _parts(ahead: int, topics: Mapping[TopicKey, TopicDemand], fetchers: int) -> dict[TopicKey, int]:
    """What topics that hold less than their parts may fetch, also those of which nothing new is known."""
    share = ahead // max(active_count(topics.values()), 1)
    return {
        key: left // min(fetchers, topic.partitions)
        for key, topic in topics.items()
        if (left := _left(share, topic.buffered))
    }


def active_count(topics: Iterable[TopicDemand]) -> int:
    """How many have a part of the room."""
    return sum(topic.is_active for topic in topics)


def _left(ahead: int, buffered: int) -> int:
    """Room beside what is buffered; 0 rather than little, which would make for many small fetches."""
    left = ahead - buffered
    return left if left > ahead // LITTLE else 0
