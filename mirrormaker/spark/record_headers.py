"""Where the headers of many records are: numpy takes the first of each record, then the second, and so on.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirrormaker.spark.record_fields import Fields
from mirrormaker.spark.varints import NumberBuffer, Numbers, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFields:
    """All headers, those of record 0 first. Sizes of values are -1 for what is null."""

    key_starts: Positions
    key_sizes: Numbers
    value_starts: Positions
    value_sizes: Numbers


def find_headers(data: bytes | memoryview, fields: Fields) -> HeaderFields:
    """The headers of all records. Raises IndexError for headers that are torn or do not end with their
    record.
    """
    buffer = NumberBuffer(data)
    positions = fields.header_starts.copy()
    left = fields.header_counts.copy()
    rounds: list[tuple[Positions, Numbers, Positions, Numbers]] = []
    while len(going_on := np.flatnonzero(left)):
        key_sizes, key_starts = buffer.read(positions[going_on])
        if key_sizes.min() < 0:
            raise IndexError("a header without a key")
        value_sizes, value_starts = buffer.read_last(key_starts + key_sizes)
        positions[going_on] = value_starts + np.maximum(value_sizes, 0)
        if (positions > fields.ends).any():
            raise IndexError("headers that go on behind their record")
        left[going_on] -= 1
        rounds.append((key_starts, key_sizes, value_starts, value_sizes))
    if (positions != fields.ends)[fields.header_counts > 0].any():
        raise IndexError("bytes behind the headers of a record")
    columns = [np.concatenate([each[index] for each in rounds] or [left[:0]]) for index in range(4)]
    order = np.argsort(columns[0], kind="stable")
    key_starts, key_sizes, value_starts, value_sizes = (column[order] for column in columns)
    return HeaderFields(
        key_starts=key_starts, key_sizes=key_sizes, value_starts=value_starts, value_sizes=value_sizes
    )
