"""What members of classic consumer groups tell each other inside JoinGroup and SyncGroup."""

from __future__ import annotations

from collections.abc import Sequence

from broker.wire.message import VersionedData
from broker.wire.schema import Struct, array, bytestring, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: Sequence[int] = array(int32)


class ConsumerProtocolSubscription(VersionedData, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = bytestring(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(VersionedData, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytestring(nullable="0+", default=None)
