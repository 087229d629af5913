"""Produce requests, in the format that the leader takes, and the answers to them. Pure.

Leaders older than Kafka 0.11 take messages of magic 0 or 1 (Produce up to version 2): batches are converted
for them each time they are sent, as the next leader may be a younger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.client.producer_settings import ProducerSettings
from broker.errors import ProtocolError
from broker.records.legacy import to_message_set
from broker.types import Buffer, HostPort, TopicPartition
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_BATCHES_SINCE = 3
_TIMESTAMPS_SINCE = 2
_DECODED_BYTES_MAX = 256 * 1024 * 1024


def format_records(batch: Buffer, version: int, leader: HostPort) -> Buffer:
    """One closed batch as it travels in a request of that version.

    Raises ProtocolError as `to_message_set` does when it holds what an old leader has no place for.
    """
    if version >= _BATCHES_SINCE:
        return batch
    magic = 1 if version >= _TIMESTAMPS_SINCE else 0
    try:
        return to_message_set(batch, magic, size_max=_DECODED_BYTES_MAX)
    except ProtocolError as error:
        message = (
            f"{leader} serves Produce up to version {version} and takes messages of magic {magic}, as Kafka "
            f"before 0.11: {error.message}"
        )
        raise ProtocolError(error.code, message) from error


def build_produce(
    contents: Iterable[tuple[TopicPartition, Buffer]], settings: ProducerSettings, *, forward: bool
) -> ProduceRequest:
    """The request for one content of each partition; `forward` asks the node to pass them on."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), records in contents:
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(
        transactional_id=settings.transactional_id,
        forward=forward,
        acks=settings.acks,
        timeout_ms=settings.request_timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )


def answers_by_partition(response: ProduceResponse) -> Mapping[TopicPartition, PartitionProduceResponse]:
    """What became of each partition's content."""
    return {
        TopicPartition(topic.name, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
