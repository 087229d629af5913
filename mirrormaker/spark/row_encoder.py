"""Rows of Arrow record batches, encoded as record batches of Kafka's format, all rows at once. Pure.

numpy packs the numbers of a record, Arrow joins them with key, value and headers: what comes out of that is
one run of bytes with record after record, which is cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from broker.records.batch import BatchHeader, Codec, read_header
from broker.records.builder import enclose
from broker.types import NO_PRODUCER_ID
from mirrormaker.spark.key_hashes import binary_parts
from mirrormaker.spark.varints import Numbers, number_sizes, pack_numbers

_MAGIC = 2
_NO_HEADERS = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Records to write, column by column; keys and values may be null, and `headers` be none at all."""

    keys: pa.Array[Any]
    values: pa.Array[Any]
    timestamps: Numbers
    """Milliseconds."""
    headers: pa.Array[Any] | None = None

    def take(self, order: NDArray[np.int64]) -> Rows:
        """These rows in this order."""
        return Rows(
            keys=self.keys.take(order),
            values=self.values.take(order),
            timestamps=self.timestamps[order],
            headers=None if self.headers is None else self.headers.take(order),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """What batches are to be like; `bytes_max` bounds them uncompressed, a larger record has its own."""

    codec: Codec = Codec.NONE
    level: int | None = None
    bytes_max: int = 256 * 1024


def encode_rows(rows: Rows, targets: Numbers, terms: BatchTerms) -> Iterator[tuple[int, bytearray]]:
    """Batches of the rows, each with the number of its target. Rows of a target follow each other, and keep
    their order.
    """
    count = len(targets)
    headers, header_sizes = _header_bytes(rows, count)
    key_sizes, value_sizes = _sizes(rows.keys), _sizes(rows.values)
    # At most ten bytes for each of two deltas: enough to decide on batches before the deltas are known.
    sizes = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes + 32
    firsts = _batch_starts(targets, sizes, terms.bytes_max)
    counts = np.diff(np.append(firsts, count))
    offset_deltas = np.arange(count) - np.repeat(firsts, counts)
    timestamp_deltas = rows.timestamps - np.repeat(rows.timestamps[firsts], counts)
    lengths = (
        1
        + number_sizes(timestamp_deltas)
        + number_sizes(offset_deltas)
        + number_sizes(key_sizes)
        + np.maximum(key_sizes, 0)
        + number_sizes(value_sizes)
        + np.maximum(value_sizes, 0)
        + header_sizes
    )
    attributes = np.zeros(count, np.int64)
    before_keys = _packed(lengths, attributes, timestamp_deltas, offset_deltas, key_sizes)
    records = _join(before_keys, rows.keys, _packed(value_sizes), rows.values, headers)
    bounds, data = binary_parts(records)
    content = data.data
    for first, batch_count in zip(firsts.tolist(), counts.tolist(), strict=True):
        timestamps = rows.timestamps[first : first + batch_count]
        header = _header(batch_count, int(timestamps[0]), int(timestamps.max()))
        part = content[bounds[first] : bounds[first + batch_count]]
        yield int(targets[first]), enclose(header, part, terms.codec, terms.level)


def encode_within(
    rows: Rows, targets: Numbers, terms: BatchTerms, bytes_max_of: Callable[[int], int]
) -> Iterator[tuple[int, bytearray]]:
    """As `encode_rows`, with batches of several rows no larger than their target takes, as they are sent:
    what cannot be compressed grows by that.
    """
    first = 0
    for target, encoded in encode_rows(rows, targets, terms):
        count = read_header(encoded).record_count
        if count == 1 or len(encoded) <= bytes_max_of(target):
            yield target, encoded
        else:
            for half in np.array_split(np.arange(first, first + count), 2):
                yield from encode_within(rows.take(half), targets[half], terms, bytes_max_of)
        first += count


def _batch_starts(targets: Numbers, sizes: Numbers, bytes_max: int) -> NDArray[np.int64]:
    """The first row of each batch."""
    ends = np.cumsum(sizes)
    changes = np.flatnonzero(np.diff(targets)) + 1
    starts = []
    for first, end in zip([0, *changes.tolist()], [*changes.tolist(), len(targets)], strict=True):
        row = first
        while row < end:
            starts.append(row)
            taken = ends[row] - sizes[row] + bytes_max
            row = max(row + 1, min(end, int(np.searchsorted(ends, taken, side="right"))))
    return np.array(starts, np.int64)


def _header(count: int, first_timestamp: int, max_timestamp: int) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=_MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


def _sizes(array: pa.Array[Any]) -> Numbers:
    """Of each byte string, -1 for null."""
    bounds, _ = binary_parts(array)
    sizes = np.diff(bounds).astype(np.int64)
    if array.null_count:
        sizes[np.asarray(array.is_null())] = -1
    return sizes


def _packed(*columns: Numbers) -> pa.Array[Any]:
    """The numbers of each row as one byte string."""
    data, bounds = pack_numbers(columns)
    return _binary(bounds.astype(np.int32), data)


def _binary(bounds: NDArray[np.int32], data: NDArray[np.uint8]) -> pa.Array[Any]:
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds.data), pa.py_buffer(data.data)]
    )


def _join(*columns: pa.Array[Any] | pa.Scalar[Any]) -> pa.Array[Any]:
    """The byte strings of each row behind each other; null counts as nothing."""
    options = pc.JoinOptions(null_handling="replace", null_replacement="")
    separator = pa.scalar(b"", pa.binary())
    joined: pa.Array[Any] = pc.call_function("binary_join_element_wise", [*columns, separator], options)
    return joined


def _header_bytes(rows: Rows, count: int) -> tuple[pa.Array[Any] | pa.Scalar[Any], Numbers]:
    """The headers of each row as they end its record, their count before them, and the bytes they take."""
    if rows.headers is None or rows.headers.null_count == count:
        return pa.scalar(_NO_HEADERS, pa.binary()), np.ones(count, np.int64)
    filled = pc.coalesce(rows.headers, pa.scalar([], rows.headers.type))
    each = filled.flatten()
    counts = np.asarray(pc.list_value_length(filled)).astype(np.int64)
    keys, values = each.field("key").cast(pa.binary()), each.field("value")
    joined = _join(_packed(_sizes(keys)), keys, _packed(_sizes(values)), values)
    bounds, data = binary_parts(joined)
    firsts = np.concatenate(([0], np.cumsum(counts)))
    by_row = _join(_packed(counts), _binary(bounds[firsts], data))
    return by_row, _sizes(by_row)
