"""What the rows of a task are known again by: their count, and a checksum of their topics, partitions, keys,
values and headers. Pure.

Times are not part of it: a step may take that of the attempt. How rows are cut into batches does not matter:
each column has a checksum of its own for its bytes, and one for where these are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray

from mirrormaker.spark.key_hashes import binary_parts

_NULL = -1


class Fingerprint:
    """Of the rows that pass by."""

    def __init__(self) -> None:
        self.count = 0
        self._checksums: dict[str, int] = {}

    def passing(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        for batch in batches:
            self.count += batch.num_rows
            for name, numbers in _streams(batch):
                self._checksums[name] = crc32c(numbers.view(np.uint8).data, self._checksums.get(name, 0))
            yield batch

    def __str__(self) -> str:
        told = " ".join(f"{name} {checksum:08x}" for name, checksum in sorted(self._checksums.items()))
        return f"{self.count} rows {crc32c(told.encode()):08x}"


def _streams(batch: pa.RecordBatch) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in ("topic", "key", "value"):
        if name in batch.schema.names:
            yield from _texts(name, batch.column(name))
    if "partition" in batch.schema.names:
        yield "partition", np.asarray(batch.column("partition").fill_null(_NULL))
    if "headers" in batch.schema.names:
        column = batch.column("headers")
        yield "headers", np.asarray(pc.list_value_length(column).fill_null(0))
        each: pa.Array[Any] = pc.list_flatten(column)
        for name in ("key", "value"):
            yield from _texts(f"headers.{name}", pc.struct_field(each, name))


def _texts(name: str, column: pa.Array[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The sizes of strings or bytes, and what they hold one after the other."""
    if not len(column):
        return
    is_null = np.asarray(column.is_null())
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    bounds, data = binary_parts(column)
    sizes = np.diff(bounds)
    sizes[is_null] = _NULL
    yield f"{name} sizes", sizes
    yield name, data[bounds[0] : bounds[-1]]
