"""Which partition a record goes to. Pure, apart from the randomness that is handed in.

Records with the same key must land in the same partition whatever client sends them, so the hashes are those
of the clients in use: murmur2 as Java's, CRC-32 as librdkafka's. Records without a key go to partitions that
have a leader; sticky partitioners stay with one until its batch is closed, which makes batches large.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import unpack_from
from typing import Protocol
from zlib import crc32

from broker.client.backoff import Random, system_random

_UINT32 = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_MURMUR2_SEED = 0x9747B28C
_MURMUR2_FACTOR = 0x5BD1E995
_KEYS_REMEMBERED_MAX = 65_536
"""Hashes of recent keys that are kept; hashing a key anew costs about 20 times as much as finding it."""


class Partitioner(Protocol):
    """Chooses partitions for one producer; may keep state per topic."""

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        """One of the `count` partitions of the topic; any other answer, and what is raised, ends the `send`.

        `available` are those with a leader, in the order of (leader, partition); all, when none has one.
        """
        ...

    def batch_closed(self, topic: str, partition: int) -> None:
        """A batch for the partition is complete: the next record without a key may go elsewhere. What is
        raised is logged, as it can change nothing.
        """
        ...


@lru_cache(maxsize=_KEYS_REMEMBERED_MAX)
def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of Java's clients, unsigned."""
    size = len(data)
    words = size // 4
    value = _MURMUR2_SEED ^ size
    for word in unpack_from(f"<{words}I", data):
        word = word * _MURMUR2_FACTOR & _UINT32
        word = (word ^ word >> 24) * _MURMUR2_FACTOR & _UINT32
        value = value * _MURMUR2_FACTOR & _UINT32 ^ word
    if tail := data[words * 4 :]:
        value = (value ^ int.from_bytes(tail, "little")) * _MURMUR2_FACTOR & _UINT32
    value = (value ^ value >> 13) * _MURMUR2_FACTOR & _UINT32
    return value ^ value >> 15


class StickyPartitioner:
    """Ignores keys: stays with one available partition of a topic until its batch is closed, then picks
    another.
    """

    def __init__(self, random: Random = system_random) -> None:
        self._random = random
        self._current: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return self._stay(topic, available)

    def _stay(self, topic: str, available: Sequence[int]) -> int:
        current = self._current.get(topic)
        if current is None or current not in available:
            current = self._current[topic] = available[int(self._random() * len(available))]
        return current

    def batch_closed(self, topic: str, partition: int) -> None:
        if self._current.get(topic) == partition:
            del self._current[topic]


class Murmur2Partitioner(StickyPartitioner):
    """As Java's clients: by the murmur2 hash of the key, sticky without one."""

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        if key is None:
            return self._stay(topic, available)
        return (murmur2(key) & _POSITIVE) % count


class Crc32Partitioner(StickyPartitioner):
    """As librdkafka's `consistent_random`: by the CRC-32 of the key; sticky where it is missing or empty."""

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        if not key:
            return self._stay(topic, available)
        return crc32(key) % count


class ConsistentPartitioner:
    """As librdkafka's `consistent`: by the CRC-32 of the key; all records without one in one partition."""

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return crc32(key or b"") % count

    def batch_closed(self, topic: str, partition: int) -> None:
        pass


class RandomPartitioner:
    """Any available partition, for each record anew; ignores keys."""

    def __init__(self, random: Random = system_random) -> None:
        self._random = random

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return available[int(self._random() * len(available))]

    def batch_closed(self, topic: str, partition: int) -> None:
        pass


class RoundRobinPartitioner:
    """The available partitions of a topic in turn, record by record, all of one broker before those of the
    next; ignores keys.
    """

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return available[turn % len(available)]

    def batch_closed(self, topic: str, partition: int) -> None:
        pass
