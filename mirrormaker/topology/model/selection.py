"""Which topics a route takes, what they become, and where it starts in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from mirrormaker.topology.model.names import DEFAULT_TOPIC_TEMPLATE


class PartitionPolicy(Enum):
    """Where the records of a source partition go: SAME into the partition of the same number, KEY by the hash
    of their keys as Kafka's producers do, ROUND_ROBIN into all in turn.
    """

    SAME = "same"
    KEY = "key"
    ROUND_ROBIN = "round_robin"


class ExistingTopics(Enum):
    """What a new route does about a topic of the destination that holds records already: REFUSE to write it
    until somebody has decided, or APPEND to it.
    """

    REFUSE = "refuse"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Topics by regular expressions that match the whole name, and what they become at the destination."""

    include: tuple[str, ...]
    """Regular expressions: a topic is taken when one matches its whole name. Internal topics never are."""
    exclude: tuple[str, ...] = ()
    """Regular expressions of topics to leave out."""
    name: str = DEFAULT_TOPIC_TEMPLATE
    """Name at the destination; `{cluster}` is the source's name in this file, `{topic}` the topic's there."""
    partitions: PartitionPolicy = PartitionPolicy.SAME
    """`same`: a record keeps its partition. `key`: by the hash of its key. `round_robin`: all in turn."""
    merge: bool = False
    """Several routes may write one topic; all of them must say so."""
    existing: ExistingTopics = ExistingTopics.REFUSE
    """What about a topic of the destination that holds records while the route has no position: `append` to
    it, or `refuse` until that is said, or a plan forced. Routes that merge, have provenance, or a failover
    group append.
    """


class Start(Enum):
    """Where a new route starts: EARLIEST at the oldest record, LATEST behind the newest."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAtTime:
    """A new route starts at the first record of this time or later."""

    timestamp_ms: int
    """Milliseconds since the epoch, or ISO 8601 with a time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAtOffsets:
    """A new route starts at these offsets; partitions that are not named at the earliest."""

    offsets: Mapping[str, Mapping[int, int]]
    """Source topic -> partition -> offset."""


StartPosition = Start | StartAtTime | StartAtOffsets
