"""Under which producer ids a lane sends, and how far each has come there. Pure.

A chunk's `origin` says under which identity it goes: 0 for what was born at the source, other numbers for
what came there from elsewhere. Identities are shared by the lanes of a bucket, sequences are not: a broker
counts them by partition. Where several source partitions write to one destination partition, each has
identities of its own, since sequences of a producer in a partition must come from one lane.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.errors import ErrorCode
from broker.types import TopicPartition


class ProducerKey(NamedTuple):
    """Whose identity it is."""

    bucket: int
    origin: int
    source: TopicPartition | None
    """None: of all lanes of the bucket."""

    def __str__(self) -> str:
        name = f"{self.bucket}/{self.origin}"
        return name if self.source is None else f"{name}/{self.source}"


class ProducerIdentity(NamedTuple):
    """What the mirror stamps on batches."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None
    """None: batches are part of no transaction. Else they are, and requests name it."""


class ProducerProblem(NamedTuple):
    """Why an identity that was asked for is not there yet; it is asked for again."""

    said: str
    """In the destination's words, for people."""
    code: ErrorCode | None
    failures: int
    """In a row."""


class LaneProducer:
    """An identity in one lane."""

    __slots__ = ("answered_at_ms", "identity", "next_sequence", "origin", "proven")

    def __init__(self, origin: int, identity: ProducerIdentity) -> None:
        self.origin = origin
        self.identity = identity
        self.next_sequence = 0
        self.proven = False
        """The broker is sure to know it: several chunks may be in flight."""
        self.answered_at_ms = 0
        """When the destination last acknowledged something of it."""


class ProducerWishes:
    """Identities that lanes wait for, until they are there."""

    def __init__(self) -> None:
        self._wanted: dict[ProducerKey, None] = {}
        self._asked: set[ProducerKey] = set()

    def add(self, key: ProducerKey) -> None:
        """A lane needs this identity, one that it has not used yet."""
        self._wanted[key] = None

    def take(self) -> list[ProducerKey]:
        """Those to ask for now: what has been asked for and is not there yet is not asked for again."""
        if not self._wanted:
            return []
        keys = [key for key in self._wanted if key not in self._asked]
        self._wanted.clear()
        self._asked.update(keys)
        return keys

    def end(self, key: ProducerKey) -> None:
        """It is there."""
        self._asked.discard(key)
