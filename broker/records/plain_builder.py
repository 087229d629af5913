"""Batches out of records that the compiled builder refuses: names of headers that are not UTF-8. Pure.

As `BatchBuilder`, in Python, and so some ten times as slow. A name is what `read_columns` gives of it with
`exact_names`; its bytes are written as they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.records.batch import HEADER_SIZE, BatchHeader, Codec
from broker.records.builder import enclose
from broker.records.record import Header, name_bytes, varint
from broker.types import NO_PRODUCER_ID

_NO_FIELD = varint(-1)


class PlainBuilder:
    """Collects records of one batch until it is full, then gives the batch; see `BatchBuilder`."""

    __slots__ = ("_base_timestamp", "_codec", "_content", "_count", "_latest", "_size_max")

    def __init__(self, codec: Codec, *, size_max: int) -> None:
        self._codec = codec
        self._size_max = size_max
        self._content = bytearray()
        self._count = 0
        self._base_timestamp = self._latest = 0

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    def append(
        self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()
    ) -> bool:
        """Add a record; False when it no longer fits and was not added."""
        if not self._count:
            self._base_timestamp = self._latest = timestamp_ms
        body = bytearray(1)  # attributes
        body += varint(timestamp_ms - self._base_timestamp)
        body += varint(self._count)
        body += _field(key)
        body += _field(value)
        pairs = list(headers)
        body += varint(len(pairs))
        for name, content in pairs:
            body += _field(name_bytes(name))
            body += _field(content)
        record = varint(len(body)) + body
        if self._count and HEADER_SIZE + len(self._content) + len(record) > self._size_max:
            return False
        self._content += record
        self._count += 1
        self._latest = max(self._latest, timestamp_ms)
        return True

    def build(self) -> bytearray:
        """The whole batch with its CRC."""
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._latest,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=self._count,
        )
        return enclose(header, self._content, self._codec)


def _field(content: bytes | None) -> bytes:
    return _NO_FIELD if content is None else varint(len(content)) + content
