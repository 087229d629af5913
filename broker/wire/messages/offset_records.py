"""Records of `__consumer_offsets` that hold committed offsets."""

from __future__ import annotations

from broker.wire.message import VersionedData
from broker.wire.schema import int32, int64, string


class OffsetCommitKey(VersionedData, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(VersionedData, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
