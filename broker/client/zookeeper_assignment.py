"""Who reads what in a group that meets in ZooKeeper. Pure: every member sees the same registrations and
topics, and comes to the same result without asking anybody.

A consumer C that reads a topic with n streams takes part with the streams `C-0` to `C-(n-1)`. The
partitions of a topic, P of them, and the S streams that read it are sorted; with N, R = divmod(P, S),
stream i gets N + (1 if i < R) partitions from number i*N + min(i, R) on.

Partitions are sorted by preferred broker and number, so that a stream needs connections to few brokers.
Apache Kafka's consumers sort them by number alone: in a group that one of those has joined all others do
the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import TypeVar

from broker.client.topic_pattern import TopicPattern
from broker.coordination.znodes import Assignment, ConsumerZnode
from broker.types import TopicPartition

_Item = TypeVar("_Item")

STREAMS_MAX = 10_000
"""More streams of one consumer than anybody has tasks for: what asks for more is not right."""

_PATTERNS = {ConsumerZnode.ALLOW: False, ConsumerZnode.DENY: True}


class PartitionNames(Enum):
    """What the znodes of a partition are called below `owners/T` and `offsets/T`."""

    NUMBER = "number"
    """Its number, since Kafka 0.8."""
    BROKER_AND_NUMBER = "broker-number"
    """Preferred broker and number, as Kafka 0.7 wrote them."""

    def name_of(self, partition: int, replicas: Sequence[int]) -> str:
        """The znode's name; the preferred broker is the first of the replicas."""
        return str(partition) if self is PartitionNames.NUMBER else f"{replicas[0]}-{partition}"


def partition_of_name(name: str) -> int | None:
    """The number of the partition that a znode below `owners/T` or `offsets/T` is about, whichever way it is
    named; None for any other name.
    """
    broker, separator, number = name.rpartition("-")
    if not number.isdecimal() or (separator and not broker.isdecimal()):
        return None
    return int(number)


def stream_name(consumer: str, stream: int) -> str:
    """What a stream of a consumer is called in its group, and as the owner of partitions."""
    return f"{consumer}-{stream}"


def consumer_of_stream(name: str) -> str:
    """The consumer that a stream is of."""
    return name.rpartition("-")[0]


def register(subscription: Mapping[str, int] | tuple[TopicPattern, int], timestamp_ms: int) -> ConsumerZnode:
    """What a consumer tells its group: how many streams read each topic, or what the pattern matches."""
    if isinstance(subscription, Mapping):
        streams, pattern = dict(subscription), ConsumerZnode.STATIC
    else:
        topics, count = subscription
        streams = {topics.expression: count}
        pattern = ConsumerZnode.DENY if topics.denies else ConsumerZnode.ALLOW
    return ConsumerZnode(
        subscription=streams, pattern=pattern, timestamp_ms=timestamp_ms, sorts_by_broker=True
    )


def topics_of(
    registration: ConsumerZnode, existing: Collection[str], *, internal_too: bool = False
) -> dict[str, int]:
    """The topics, of those there are, that a registered consumer reads, with the number of streams.

    Raises ValueError for a pattern that is no regular expression, and for numbers that count no streams.
    """
    for topic, count in registration.subscription.items():
        if not 0 <= count <= STREAMS_MAX:
            raise ValueError(f"{count} streams of {topic}: from 0 to {STREAMS_MAX} are possible")
    if registration.pattern not in _PATTERNS:
        return {topic: count for topic, count in registration.subscription.items() if topic in existing}
    matched: dict[str, int] = {}
    for expression, count in registration.subscription.items():
        pattern = TopicPattern(expression, denies=_PATTERNS[registration.pattern])
        matched |= {topic: count for topic in existing if pattern.matches(topic, internal_too=internal_too)}
    return matched


def share_of(
    consumer: str,
    registrations: Mapping[str, ConsumerZnode],
    topics: Mapping[str, Assignment],
    *,
    internal_too: bool = False,
) -> dict[TopicPartition, int]:
    """The partitions that a registered consumer is to read, each with the number of its stream for it.

    `topics` are those there are, with the replicas of each partition. Raises ValueError as `topics_of`.
    """
    by_broker = all(registration.sorts_by_broker for registration in registrations.values())
    read = {
        member: topics_of(registration, topics, internal_too=internal_too)
        for member, registration in registrations.items()
    }
    share: dict[TopicPartition, int] = {}
    for topic in read[consumer]:
        streams = {
            stream_name(member, stream): (member, stream)
            for member, counts in read.items()
            for stream in range(counts.get(topic, 0))
        }
        runs = spread(_sorted(topics[topic], by_broker=by_broker), len(streams))
        for name, run in zip(sorted(streams, key=_collation), runs, strict=True):
            member, stream = streams[name]
            if member == consumer:
                share |= {TopicPartition(topic, partition): stream for partition in run}
    return share


def spread(items: Sequence[_Item], count: int) -> list[Sequence[_Item]]:
    """The items in `count` runs that differ by one at most, the longer ones first."""
    length, longer = divmod(len(items), count) if count else (0, 0)
    starts = [run * length + min(run, longer) for run in range(count + 1)]
    return [items[start:end] for start, end in pairwise(starts)]


def _sorted(partitions: Assignment, *, by_broker: bool) -> list[int]:
    if not by_broker:
        return sorted(partitions)
    return sorted(partitions, key=lambda partition: (partitions[partition][0], partition))


def _collation(name: str) -> bytes:
    """Java's order of strings, which all members must share."""
    return name.encode("utf-16-be", "surrogatepass")
