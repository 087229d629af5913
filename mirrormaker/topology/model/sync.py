"""What a route keeps alike at both ends beside the records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CARRIED_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes")
"""Settings that a route carries over unless it says which."""
UNCARRIED_SETTINGS = frozenset(
    {
        "compression.type",
        "message.timestamp.type",
        "message.format.version",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings that mean something else at the destination, or would change what is copied: batches recompressed,
timestamps replaced, nodes named that are others there. Never carried over.
"""


class RepairKind(Enum):
    """Differences that can be repaired: lacking TOPICS, PARTITIONS and ACLS, CONFIG that differs."""

    TOPICS = "topics"
    PARTITIONS = "partitions"
    CONFIG = "config"
    ACLS = "acls"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSync:
    """Consumer groups whose positions are carried over to the destination."""

    include: tuple[str, ...] = (".*",)
    """Regular expressions: a group is carried over when one matches its whole name."""
    exclude: tuple[str, ...] = ()
    """Regular expressions of groups to leave out."""
    interval_ms: int = 5000
    """How often."""
    rewinds: bool = True
    """Whether a group that goes back at the source goes back at the destination too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSpec:
    """What is kept alike."""

    topics: bool = True
    """Topics that the destination lacks are created there."""
    partitions: bool = True
    """Topics of the destination grow when the source's do."""
    config: tuple[str, ...] = CARRIED_SETTINGS
    """Settings of topics that are carried over where the source topic has them of its own: names, or regular
    expressions that match the whole name.
    """
    repair: tuple[RepairKind, ...] = tuple(RepairKind)
    """Differences that the daemon repairs by itself, unless data would be lost by it; others are told, and
    left to `mirrormaker apply`.
    """
    acls: bool = False
    """Access rules of the topics, and of the groups that are carried, are carried over: rights to read and to
    describe, for each copy.
    """
    write_acls: bool = False
    """With `acls`: all rights are carried over, also those to write and to change, and rules for names that
    begin alike as such. For a migration, where others are to write there in the end.
    """
    groups: GroupSync | None = None
    """Consumer groups that are carried over; left out, none."""
