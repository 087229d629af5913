"""Encode and decode of messages: ours beside kio and kafka-python, in one run on one machine.

    python ops/bench/wire.py [--seconds 0.5]

Every figure is the best of several rounds, in microseconds a message, with the garbage collector as a
server has it. The three sides work on the same bytes. Records are 100 KB per partition: ours passes them
through without a copy, which `encode_parts` and the views of `decode` make possible; the others have no
such way.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Callable
from io import BytesIO
from time import perf_counter
from typing import Any
from uuid import UUID

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from broker.wire.message import Message
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from broker.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer

RECORDS = bytes(100_000)
ROUNDS = 7


def metadata_response() -> MetadataResponse:
    """100 topics of 10 partitions with 3 replicas each."""
    partitions = [
        MetadataResponsePartition(
            partition_index=number,
            leader_id=number % 3,
            leader_epoch=5,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for number in range(10)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"broker-{n}", port=9092) for n in range(3)],
        cluster_id="a-cluster",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{number:03}", topic_id=UUID(int=number + 1), partitions=partitions
            )
            for number in range(100)
        ],
    )


def produce_request(partition_count: int) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=RECORDS) for number in range(partition_count)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def produce_response(partition_count: int) -> ProduceResponse:
    answers = [PartitionProduceResponse(index=number, base_offset=7) for number in range(partition_count)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])


def fetch_request(partition_count: int) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=123, partition_max_bytes=1 << 20)
        for number in range(partition_count)
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)])


def fetch_response(partition_count: int) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=number, high_watermark=10**6, records=RECORDS, aborted_transactions=None
        )
        for number in range(partition_count)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


CASES: list[tuple[str, Message, int, Any]] = [
    ("Metadata v12 response, 100 x 10", metadata_response(), 12, kafka.protocol.metadata.MetadataResponse),
    ("Produce v9 request, 1 x 100 KB", produce_request(1), 9, kafka.protocol.producer.ProduceRequest),
    ("Produce v9 request, 10 x 100 KB", produce_request(10), 9, kafka.protocol.producer.ProduceRequest),
    ("Produce v9 response, 10", produce_response(10), 9, kafka.protocol.producer.ProduceResponse),
    ("Fetch v12 request, 10", fetch_request(10), 12, kafka.protocol.consumer.FetchRequest),
    ("Fetch v12 response, 1 x 100 KB", fetch_response(1), 12, kafka.protocol.consumer.FetchResponse),
    ("Fetch v12 response, 10 x 100 KB", fetch_response(10), 12, kafka.protocol.consumer.FetchResponse),
]


def best_microseconds(work: Callable[[], object], seconds: float) -> float:
    """The fastest of several rounds that take about `seconds` together."""
    started = perf_counter()
    work()
    once = max(perf_counter() - started, 1e-7)
    count = max(1, int(seconds / ROUNDS / once))
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        started = perf_counter()
        for _ in range(count):
            work()
        best = min(best, (perf_counter() - started) / count)
    return best * 1e6


def measure(message: Message, version: int, kafka_python: Any, seconds: float) -> list[tuple[float, float]]:
    """(encode, decode) of ours, kio and kafka-python. Raises AssertionError when their bytes differ."""
    encoded = message.encode(version)
    side = EntityType.request if type(message).__name__.endswith("Request") else EntityType.response
    kio_class = getattr(load_payload_module(message.api_key, version, side), type(message).__name__)
    kio_read, kio_write = entity_reader(kio_class), entity_writer(kio_class)
    kio_message, _size = kio_read(encoded, 0)
    decoded = kafka_python.decode(encoded, version=version)
    values = {name: getattr(decoded, name) for name in decoded.fields}
    kafka_python_message = kafka_python(version=version, **values)

    def kio_encode() -> bytes:
        buffer = BytesIO()
        kio_write(buffer, kio_message)
        return buffer.getvalue()

    assert kio_encode() == encoded
    assert kafka_python_message.encode(version=version) == encoded
    pairs: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (lambda: message.encode_parts(version), lambda: type(message).decode(encoded, version)),
        (kio_encode, lambda: kio_read(encoded, 0)),
        (
            lambda: kafka_python_message.encode(version=version),
            lambda: kafka_python.decode(encoded, version=version),
        ),
    ]
    return [
        (best_microseconds(encode, seconds), best_microseconds(decode, seconds)) for encode, decode in pairs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each figure")
    seconds = parser.parse_args().seconds
    print(f"microseconds a message, Python {sys.version.split()[0]}")
    print(f"{'':34}{'encode':^36}{'decode':^36}")
    columns = "".join(f"{name:>12}" for name in ("ours", "kio", "kafka-py"))
    print(f"{'':34}{columns}{columns}")
    for title, message, version, kafka_python in CASES:
        results = measure(message, version, kafka_python, seconds)
        figures = "".join(f"{encode:12.1f}" for encode, _ in results) + "".join(
            f"{d:12.1f}" for _, d in results
        )
        print(f"{title:34}{figures}")


if __name__ == "__main__":
    main()
