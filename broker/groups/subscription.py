"""What the coordinator reads of a consumer's metadata: the topics it subscribed to, and nothing else.

The metadata is ConsumerProtocolSubscription: `version int16 | topics: count int32, each: length int16, UTF-8
| …`. Assignors see all of it; this module reads the beginning, which every version shares, so that metadata
of versions still to come (KIP-54 allows them to append fields) reads as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Topics in one member's metadata; None when it is not what a consumer sends."""
    if len(metadata) < _VERSION_AND_COUNT.size:
        return None
    version, count = _VERSION_AND_COUNT.unpack_from(metadata)
    position = _VERSION_AND_COUNT.size
    if version < 0 or not 0 <= count <= (len(metadata) - position) // _LENGTH.size:
        return None
    topics = []
    for _ in range(count):
        if position + _LENGTH.size > len(metadata):
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            return None
        topics.append(metadata[position : position + length].decode("utf-8", "replace"))
        position += length
    return frozenset(topics)


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Topics of all members together; None when one of them cannot be read."""
    union: frozenset[str] = frozenset()
    for each in metadata:
        topics = topics_of(each)
        if topics is None:
            return None
        union |= topics
    return union


def same_topics(old: bytes, new: bytes) -> bool:
    """Whether two subscriptions are to the same topics; where they cannot be read, whether they are the same
    bytes.
    """
    old_topics, new_topics = topics_of(old), topics_of(new)
    if old_topics is None or new_topics is None:
        return old == new
    return old_topics == new_topics
