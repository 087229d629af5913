"""Answers to the commonest produce request: one batch, appended to one partition.

All answers for one partition in one version differ in four numbers only: correlation id, base offset, time
of append and log start offset. A template is the encoded answer of the general path with these cut out, so
that both paths cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from broker.server.request import Encoded
from broker.storage.appends import Appended
from broker.wire.header import encode_response
from broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from broker.wire.registry import api_of

TEMPLATES_MAX = 10_000
"""Templates kept; when there are more, all are made anew as they are needed."""

_API = api_of(ProduceRequest)
_NUMBERS = Struct(">qqq")
_MARKS = (0x1A2B3C4D5E6F7A01, 0x1A2B3C4D5E6F7A02, 0x1A2B3C4D5E6F7A03)
"""Values that occur nowhere else in an answer."""
_HEAD_SIZE = 8
"""Size prefix and correlation id."""
_TIMES_FROM = 2
_THROTTLE_FROM = 1
_THROTTLE = Struct(">i")
_TAGS_SIZE = 1
"""Of the response, which has no tagged fields."""
_START_OFFSETS_FROM = 5

_Template = Callable[[int, Appended], Encoded]


class ProduceAnswers:
    """The templates of one node."""

    def __init__(self) -> None:
        self._templates: dict[tuple[int, str, int], _Template] = {}

    def encode(
        self, version: int, correlation_id: int, topic: str, partition: int, appended: Appended
    ) -> Encoded:
        """The framed answer of a request whose only batch was appended."""
        key = (version, topic, partition)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template = _template(version, topic, partition)
        return template(correlation_id, appended)


def with_throttle_time(answer: Encoded, version: int, throttle_ms: int) -> Encoded:
    """The same answer with another throttle time, which is the last that it says."""
    if version < _THROTTLE_FROM or not throttle_ms:
        return answer
    (frame,) = answer
    end = len(frame) - _TAGS_SIZE if ProduceResponse.is_flexible(version) else len(frame)
    return Encoded((frame[: end - _THROTTLE.size] + _THROTTLE.pack(throttle_ms) + frame[end:],))


def _template(version: int, topic: str, partition: int) -> _Template:
    answer = PartitionProduceResponse(
        index=partition, base_offset=_MARKS[0], log_append_time_ms=_MARKS[1], log_start_offset=_MARKS[2]
    )
    response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[answer])])
    frame = b"".join(encode_response(response, _API, version, 0))
    count = 1 + (version >= _TIMES_FROM) + (version >= _START_OFFSETS_FROM)
    marks = _NUMBERS.pack(*_MARKS)[: 8 * count]
    start = frame.index(marks)
    middle, tail = frame[_HEAD_SIZE:start], frame[start + len(marks) :]
    pack = Struct(f">4si{len(middle)}s{'q' * count}{len(tail)}s").pack
    size = frame[:4]

    def encode_one(correlation_id: int, appended: Appended) -> Encoded:
        return Encoded((pack(size, correlation_id, middle, appended.first_offset, tail),))

    def encode_two(correlation_id: int, appended: Appended) -> Encoded:
        first_offset, time_ms = appended.first_offset, appended.log_append_time_ms
        return Encoded((pack(size, correlation_id, middle, first_offset, time_ms, tail),))

    def encode_three(correlation_id: int, appended: Appended) -> Encoded:
        first_offset, _, time_ms, start_offset, _ = appended
        return Encoded((pack(size, correlation_id, middle, first_offset, time_ms, start_offset, tail),))

    return (encode_one, encode_two, encode_three)[count - 1]
