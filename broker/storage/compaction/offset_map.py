"""The offset of the newest record of each key, in bounded memory. Pure.

Short keys are kept as they are; of longer ones a digest of 16 bytes, by a hash that nobody can find two equal
inputs of. Whole batches go in and are looked up through compiled code: nothing is done per record here, but
for the digests of long keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat

DIGEST_SIZE = 16
ENTRY_BYTES = 200
"""What one key costs at most: key or digest, offset, and its part of a table that has just grown."""
NO_OFFSET = -1


class OffsetMap:
    """Keys to offsets, for one cleaner thread at a time."""

    __slots__ = ("_entries_max", "_offsets")

    def __init__(self, *, bytes_max: int, load_factor: float = 1.0) -> None:
        self._entries_max = max(int(bytes_max * load_factor) // ENTRY_BYTES, 1)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """Whether so many more keys may be added. An empty map takes any one batch, so that every pass gets
        on.
        """
        return not self._offsets or len(self._offsets) + count <= self._entries_max

    def add(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Take the records of one batch; offsets ascend from batch to batch."""
        self._offsets.update(zip(_stored(keys), offsets, strict=True))

    def newest(self, keys: Sequence[bytes]) -> Iterator[int]:
        """For each key the offset of its newest record, NO_OFFSET for a key that is not known."""
        return map(self._offsets.get, _stored(keys), repeat(NO_OFFSET))


def _stored(keys: Sequence[bytes]) -> Sequence[bytes]:
    """The keys as they are kept: a digest is longer than any key that is kept as it is."""
    if max(map(len, keys), default=0) < DIGEST_SIZE:
        return keys
    return [key if len(key) < DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE).digest() for key in keys]
