"""Produce requests of one connection that differ from an earlier one in their records alone.

A producer sends to a partition again and again with the same header, topic and partition. All bytes before
the records then are the same but for the correlation id, and equal bytes decode to equal fields: so the
request decoded before is used again, with the new records in it. A connection works on one request at a
time, so nobody else holds it.

The general decoder is the only one that understands the bytes. What is learnt is where the records' length
stands; a request is taken for a repetition only if everything before it is equal, and that length leaves
exactly the empty tagged fields that end such a request.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from broker.server.request import RequestContext
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest

REPEATED_MAX = 1_000
"""Partitions that one connection's requests are remembered of."""

_LENGTH = Struct(">i")
_CORRELATION_ID = Struct(">i")
_CORRELATION_POSITION = 4
_CORRELATION_END = 8
_TAGS = bytes(3)
"""No tagged fields: of the partition, of the topic, of the request."""


class Repeated(NamedTuple):
    """A request that came before, to be used for the next one like it."""

    context: RequestContext
    request: ProduceRequest
    data: PartitionProduceData
    """The request's only partition."""
    flexible: bool


class RepeatedRequests:
    """What one connection's produce requests have in common; `match` costs a hundredth of a decoder's work
    for large ones.
    """

    __slots__ = ("_known", "_length_position")

    def __init__(self) -> None:
        self._known: dict[bytes, Repeated] = {}
        self._length_position = 0

    def match(self, frame: memoryview) -> Repeated | None:
        """The earlier request with this one's correlation id and records in it, or None."""
        position = self._length_position
        if not position:
            return None
        found = self._known.get(_key(frame, position))
        if found is None:
            return None
        span = _records_span(frame, position, found.flexible)
        if span is None:
            return None
        start, end = span
        found.context.correlation_id = _CORRELATION_ID.unpack_from(frame, _CORRELATION_POSITION)[0]
        found.data.records = frame[start:end]
        return found

    def learn(self, frame: memoryview, context: RequestContext, request: ProduceRequest) -> Repeated | None:
        """Remember a request that was decoded by the general way, if it has a single partition."""
        topics = request.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            return None
        (data,) = topics[0].partition_data
        flexible = request.is_flexible(context.api_version)
        records = data.records
        if not isinstance(records, memoryview) or not len(records):
            return None
        position = _length_position(frame, len(records), flexible)
        if _records_span(frame, position, flexible) is None:
            return None
        if len(self._known) >= REPEATED_MAX:
            self._known.clear()
        self._length_position = position
        learnt = self._known[_key(frame, position)] = Repeated(context, request, data, flexible)
        return learnt


def _key(frame: memoryview, length_position: int) -> bytes:
    """The bytes before the records, without the correlation id."""
    return b"".join((frame[:_CORRELATION_POSITION], frame[_CORRELATION_END:length_position]))


def _length_position(frame: memoryview, size: int, flexible: bool) -> int:
    """Where the length of records of `size` bytes stands if they end the request."""
    if not flexible:
        return len(frame) - size - _LENGTH.size
    return len(frame) - len(_TAGS) - size - max(1, -(-(size + 1).bit_length() // 7))


def _records_span(frame: memoryview, position: int, flexible: bool) -> tuple[int, int] | None:
    """Start and end of the records whose length stands at `position`, None unless they end the request."""
    frame_end = len(frame)
    if position + _LENGTH.size > frame_end or position <= _CORRELATION_END:
        return None
    if not flexible:
        start = position + _LENGTH.size
        end = start + int(_LENGTH.unpack_from(frame, position)[0])
        return (start, end) if start < end == frame_end else None
    length, start, shift = 0, position, 0
    while True:
        byte = frame[start]
        start += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28 or start >= frame_end:
            return None
    end = start + length - 1
    if start < end == frame_end - len(_TAGS) and frame[end:] == _TAGS:
        return start, end
    return None
