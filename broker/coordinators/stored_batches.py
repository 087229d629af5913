"""A coordinator's batches as they are read back: damage costs the record or batch it is in, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from broker.errors import CorruptRecordsError, WireError
from broker.records.reader import iterate_entries, read_all
from broker.types import Buffer

Entry = TypeVar("Entry")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Something in the log that cannot be made sense of, and why; what stands around it is not affected."""

    reason: str


def read_batches(
    chunk: Buffer, read: Callable[[memoryview], Iterator[Entry]]
) -> Iterator[Entry | Unreadable]:
    """What `read` makes of each of these whole batches, in order. Raises CorruptRecordsError when batches
    cannot be told apart.
    """
    view = memoryview(chunk)
    for position, size in iterate_entries(view):
        try:
            yield from read(view[position : position + size])
        except CorruptRecordsError as error:
            yield Unreadable(reason=error.message)


def read_records(
    batch: memoryview, decode: Callable[[bytes, bytes | None], Record], *, batch_bytes_max: int
) -> Iterator[Record | Unreadable]:
    """What `decode` makes of the key and value of each record. `batch_bytes_max` bounds the batch when it is
    uncompressed. Raises CorruptRecordsError.
    """
    for record in read_all(batch, size_max=batch_bytes_max):
        try:
            yield decode(record.key or b"", record.value)
        except WireError as error:
            yield Unreadable(reason=f"record at offset {record.offset}: {error}")
