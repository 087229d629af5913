"""Batches out of records, through aiokafka's compiled builder; compression and the header are ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from broker.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    Codec,
    read_header,
    write_header,
)
from broker.records.compression import compress, decompress_view
from broker.records.record import NO_TIMESTAMP, Header, wrapped
from broker.types import NO_PRODUCER_ID, Buffer

_NO_HEADERS: list[Header] = []


class BatchBuilder:
    """Collects records of one batch until it is full, then gives the batch, once.

    `size_max` bounds the uncompressed bytes, header included; the first record fits whatever its size. The
    batch has base offset 0 and no leader epoch; offsets within are 0, 1, 2, ….
    """

    __slots__ = ("_append", "_builder", "_codec", "_count", "_latest", "_level")

    def __init__(
        self,
        codec: Codec = Codec.NONE,
        *,
        size_max: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        level: int | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        self._count = 0
        self._latest: int | None = None
        """The latest timestamp, where the compiled builder, which takes a first one of -1 for "none yet", is
        given all of them 1 later.
        """
        self._builder = DefaultRecordBatchBuilder(
            2, Codec.NONE, transactional, producer_id, producer_epoch, base_sequence, size_max + 1
        )
        self._append = self._builder.append

    @property
    def size(self) -> int:
        """Bytes so far, header included, uncompressed."""
        size: int = self._builder.size()
        return size

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[Header] = (),
    ) -> bool:
        """Add a record; False when it no longer fits and was not added.

        Raises TypeError or UnicodeEncodeError for what is no record; the batch is unchanged then.
        """
        count = self._count
        if not count:
            self._latest = NO_TIMESTAMP if timestamp_ms == NO_TIMESTAMP else None
        latest = self._latest
        given_ms = timestamp_ms if latest is None else wrapped(timestamp_ms + 1)
        header_list = list(headers) if headers else _NO_HEADERS
        if self._append(count, given_ms, key, value, header_list) is None:
            return False
        self._count = count + 1
        if latest is not None:
            self._latest = max(latest, timestamp_ms)
        return True

    def build(self) -> bytearray:
        """The whole batch with its CRC. The builder is used up then. Raises ValueError when it is empty."""
        if self._count == 0:
            raise ValueError("a batch needs a record")
        if self._append is _refuse:
            _refuse()
        self._append = _refuse
        batch: bytearray = self._builder.build()
        if self._codec is Codec.NONE and self._latest is None:
            return batch
        header = read_header(batch)
        if self._latest is not None:
            header = header._replace(base_timestamp=NO_TIMESTAMP, max_timestamp=self._latest)
        return enclose(header, memoryview(batch)[HEADER_SIZE:], self._codec, self._level)


def recompress(
    batch: Buffer, header: BatchHeader, codec: Codec, *, size_max: int, level: int | None = None
) -> bytearray:
    """The batch that starts `batch` with another codec or level; its records stay closed, all else as it is.

    `size_max` bounds the uncompressed records. Raises CorruptRecordsError.
    """
    content = decompress_view(header.codec, memoryview(batch)[HEADER_SIZE : header.size], size_max=size_max)
    return enclose(header, content, codec, level)


def enclose(header: BatchHeader, content: Buffer, codec: Codec, level: int | None = None) -> bytearray:
    """The batch of this header with `content`, its uncompressed records, in another codec."""
    compressed = content if codec is Codec.NONE else compress(codec, content, level=level)
    batch = bytearray(HEADER_SIZE)
    batch += compressed
    attributes = header.attributes & ~CODEC_MASK | codec
    write_header(batch, 0, header._replace(batch_length=len(batch) - LENGTH_OVERHEAD, attributes=attributes))
    return batch


def _refuse(*_: object) -> NoReturn:
    raise ValueError("the batch is already built")
