"""What a plan has to tell beside its steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NoticeKind(Enum):
    """What it is about; the values are part of the JSON form."""

    UNREACHABLE = "unreachable"
    NOT_TOLD = "not_told"
    TWO_NAMES = "two_names"
    ONE_CLUSTER = "one_cluster"
    CIRCLE = "circle"
    SHARED_ID = "shared_id"
    OBSTACLE = "obstacle"
    RIGHTS = "rights"
    PARTITIONS = "partitions"
    REPLICATION = "replication"
    MESSAGE_SIZE = "message_size"
    COMPRESSION = "compression"
    TIMESTAMPS = "timestamps"
    RETENTION = "retention"
    LAG = "lag"
    CATCH_UP = "catch_up"
    LOST = "lost"
    MOVED = "moved"
    GONE = "gone"
    DAEMON = "daemon"
    OUTDATED = "outdated"
    PAUSED = "paused"
    HALTED = "halted"
    FAILOVER = "failover"
    SETTING = "setting"
    FUNCTION = "function"
    SECRET = "secret"
    TOPICS = "topics"
    WAYS = "ways"


_BLOCKING = frozenset({NoticeKind.ONE_CLUSTER, NoticeKind.CIRCLE, NoticeKind.SHARED_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to know; `about` names a route, a cluster or a topic of one."""

    kind: NoticeKind
    about: str
    message: str

    @property
    def blocks(self) -> bool:
        """Whether the plan is no good as it is."""
        return self.kind in _BLOCKING

    @property
    def is_danger(self) -> bool:
        """Whether nothing is applied without `--force`."""
        return self.blocks or self.kind is NoticeKind.OUTDATED

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.about}: {self.message}"
