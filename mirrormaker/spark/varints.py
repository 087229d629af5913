"""Zigzag-encoded numbers, many at a time, read and written by numpy. Pure.

Nearly all numbers of a record take one or two bytes, so two bytes are looked up in tables of all there are;
longer ones are put together byte by byte, for as long as any goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
Numbers = NDArray[np.int64]

_SIZE_MAX = 10


def _tables() -> tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.int16]]:
    pairs = np.arange(1 << 16, dtype=np.int64)
    first, second = pairs & 0xFF, pairs >> 8
    sizes = np.where(first < 0x80, 1, np.where(second < 0x80, 2, 0))
    raw = np.where(first < 0x80, first, first & 0x7F | second << 7)
    numbers = raw >> 1 ^ -(raw & 1)
    spans = np.where((sizes > 0) & (numbers >= 0), sizes + numbers, 0)
    return sizes.astype(np.int16), numbers.astype(np.int16), spans.astype(np.int16)


_SIZES, _NUMBERS, SPANS = _tables()
"""By two bytes, little-endian: how many bytes the number takes (0: more than two), the number, and both added
up (0: it is negative or longer), which is how far the next record is from a record's length.
"""


class NumberBuffer:
    """A buffer with numbers in it. Positions outside raise IndexError."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.bytes = np.frombuffer(data, np.uint8)
        self.pairs = np.ndarray(max(0, len(data) - 1), "<u2", data, strides=(1,))
        """Two bytes from each position on."""

    def read(self, positions: Positions) -> tuple[Numbers, Positions]:
        """The number at each position, and the position after it; at least a byte follows each."""
        pairs = self.pairs[positions]
        sizes = _SIZES[pairs]
        if sizes.all():
            return _NUMBERS[pairs].astype(np.int64), positions + sizes
        return self._read_long(positions)

    def read_last(self, positions: Positions) -> tuple[Numbers, Positions]:
        """As `read`, where the buffer may end with a number; quickest for those of one byte."""
        found = self.bytes[positions]
        if (found < 0x80).all():
            return _NUMBERS[found].astype(np.int64), positions + 1
        return self._read_long(positions)

    def _read_long(self, positions: Positions) -> tuple[Numbers, Positions]:
        raw = np.zeros(len(positions), np.uint64)
        after = positions.copy()
        going_on = np.arange(len(positions))
        for index in range(_SIZE_MAX):
            found = self.bytes[after[going_on]]
            raw[going_on] |= (found & 0x7F).astype(np.uint64) << np.uint64(7 * index)
            after[going_on] += 1
            going_on = going_on[found >= 0x80]
            if not len(going_on):
                one = np.uint64(1)
                return (raw >> one).astype(np.int64) ^ -(raw & one).astype(np.int64), after
        raise IndexError("an overlong number")


def number_sizes(numbers: Numbers) -> Numbers:
    """How many bytes each number takes."""
    sizes = np.ones(len(numbers), np.int64)
    left = _zigzag(numbers) >> np.uint64(7)
    while left.any():
        sizes += left > 0
        left >>= np.uint64(7)
    return sizes


def pack_numbers(columns: Sequence[Numbers]) -> tuple[NDArray[np.uint8], Positions]:
    """The numbers of all columns, row by row, without gaps, and where each row begins and the last ends."""
    rows = len(columns[0])
    sizes = [number_sizes(column) for column in columns]
    packed, wanted = [], []
    for column, column_sizes in zip(columns, sizes, strict=True):
        places = np.arange(column_sizes.max(initial=1), dtype=np.uint64)
        digits = _zigzag(column)[:, np.newaxis] >> places * np.uint64(7)
        goes_on = places + np.uint64(1) < column_sizes.astype(np.uint64)[:, np.newaxis]
        packed.append((digits & np.uint64(0x7F)).astype(np.uint8) | goes_on.astype(np.uint8) << 7)
        wanted.append(places < column_sizes.astype(np.uint64)[:, np.newaxis])
    bounds = np.zeros(rows + 1, np.int64)
    np.cumsum(np.sum(sizes, axis=0), out=bounds[1:])
    return np.hstack(packed)[np.hstack(wanted)], bounds


def _zigzag(numbers: Numbers) -> NDArray[np.uint64]:
    return (numbers << 1 ^ numbers >> 63).astype(np.uint64)
