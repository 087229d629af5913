"""The murmur2 hashes of many keys at once, all keys of one length side by side. Pure.

They are those of Java's clients, as `broker.client.partitioner` has them for one key: which partition a key
goes to must not depend on who sends it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEED = np.uint32(0x9747B28C)
_FACTOR = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)


def choose_partitions(keys: pa.Array[Any], count: int) -> NDArray[np.int64]:
    """The partition of each key among `count`; keys that are null get any."""
    bounds, data = binary_parts(keys)
    sizes = np.diff(bounds)
    hashes = np.zeros(len(keys), np.uint32)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        hashes[rows] = _murmur2(data[bounds[rows][:, np.newaxis] + np.arange(size)])
    return (hashes & _POSITIVE).astype(np.int64) % count


def binary_parts(array: pa.Array[Any]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Where each byte string of an array begins and the last one ends, and the bytes."""
    _, bounds, data = array.buffers()
    if bounds is None or data is None:
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    positions = np.frombuffer(memoryview(bounds), np.int32)
    return positions[array.offset : array.offset + len(array) + 1], np.frombuffer(memoryview(data), np.uint8)


def _murmur2(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The hash of each row."""
    count, size = keys.shape
    whole = size // 4 * 4
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    hashes = np.full(count, _SEED ^ np.uint32(size), np.uint32)
    for index in range(size // 4):
        word = words[:, index] * _FACTOR
        word = (word ^ word >> np.uint32(24)) * _FACTOR
        hashes = hashes * _FACTOR ^ word
    if whole < size:
        for index in range(whole, size):
            hashes ^= keys[:, index].astype(np.uint32) << np.uint32(8 * (index - whole))
        hashes *= _FACTOR
    hashes = (hashes ^ hashes >> np.uint32(13)) * _FACTOR
    return hashes ^ hashes >> np.uint32(15)
