"""What a record takes in a batch at most, known before it is encoded. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker.records.record import Header

_RECORD_OVERHEAD_BYTES = 70
"""What a record takes beside key, value and headers, at most; also stands for its share of the batch's
header.
"""
_HEADER_OVERHEAD_BYTES = 10
_CHARACTER_BYTES_MAX = 4


def record_size_max(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Bytes a record takes at most in a batch."""
    size = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += _CHARACTER_BYTES_MAX * len(name) + len(content or b"") + _HEADER_OVERHEAD_BYTES
    return size
