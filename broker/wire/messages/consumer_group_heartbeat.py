"""ConsumerGroupHeartbeat: join, stay in and leave a group of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from broker.wire.message import Message, Request
from broker.wire.schema import Struct, array, int16, int32, nested, string, uuid


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: Sequence[int] = array(int32)


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], key=68, versions="0-1", flexible="0+"
):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class ResponseTopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: Sequence[int] = array(int32)


class Assignment(Struct):
    topic_partitions: list[ResponseTopicPartitions] = array(ResponseTopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+", default=None)
