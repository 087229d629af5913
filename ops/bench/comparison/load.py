"""The client's side of one measurement: a process on the client's core that prints its result as JSON.

    python -m ops.bench.comparison.load (throughput|produce|latency) PLAN

It makes the topic, produces for as long as the plan says, waits until the log holds every record, fetches
all of them unless it was told to `produce` only, and deletes the topic.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ops.bench.comparison.cases import Case, Client, Figure, Latency, Outcome, Plan
from ops.bench.comparison.payload import record_values
from ops.bench.comparison.prebuilt import fetch_prebuilt, produce_prebuilt
from ops.bench.comparison.stopwatch import Stopwatch

BYTES_MAX = 1 << 29
"""Of values in one case, so that what is written stays in the page cache."""
QUEUED_BYTES_MAX = 64 << 20
QUEUED_RECORDS_MAX = 400_000
CHUNK_BYTES = 500_000
"""Of values handed to librdkafka at once."""
CHUNK_RECORDS_MAX = 2_000
CONSUMED_AT_ONCE_MAX = 10_000
TIMEOUT_SECONDS = 60.0
LATENCY_RECORD_SIZE = 1_000
LATENCY_WARM_UP = 0.2
"""Share of the records whose latency does not count."""


def main() -> None:
    """Run one plan."""
    kind, plan = sys.argv[1], Plan.from_json(sys.argv[2])
    admin = AdminClient({"bootstrap.servers": plan.bootstrap})
    leaders = create_topic(admin, plan)
    result: Figure | Latency | Outcome
    match kind:
        case "latency":
            result = measure_latency(plan)
        case "produce":
            result = measure_produce(plan, leaders)
        case _:
            result = measure_throughput(plan, leaders)
    print(json.dumps(asdict(result)), flush=True)
    delete_topic(admin, plan.topic)


def create_topic(admin: AdminClient, plan: Plan) -> list[int]:
    """Make the topic and wait until all its replicas are in sync and served; the leaders, by partition."""
    config = {"flush.messages": "1"} if plan.case.flush else {}
    topic = NewTopic(plan.topic, plan.case.partitions, plan.case.replicas, config=config)
    admin.create_topics([topic])[plan.topic].result(TIMEOUT_SECONDS)
    leaders: list[int] = []

    def is_led() -> bool:
        found = admin.list_topics(plan.topic, timeout=TIMEOUT_SECONDS).topics[plan.topic].partitions
        leaders[:] = [found[number].leader for number in sorted(found)]
        return (
            len(found) == plan.case.partitions
            and all(leader >= 0 for leader in leaders)
            and all(len(partition.isrs) == plan.case.replicas for partition in found.values())
        )

    def do_lead() -> bool:
        """One node may know of the leaders before they do."""
        try:
            return _stored(consumer, plan) == 0
        except KafkaException:
            return False

    _wait_until(is_led)
    consumer = _consumer(plan)
    _wait_until(do_lead)
    consumer.close()
    return leaders


def delete_topic(admin: AdminClient, topic: str) -> None:
    """The next case starts when the topic is gone; a controller that takes too long spoils nothing."""
    try:
        admin.delete_topics([topic], request_timeout=TIMEOUT_SECONDS)[topic].result()
    except KafkaException as error:
        print(f"{topic} was not deleted: {error}", file=sys.stderr)


def measure_throughput(plan: Plan, leaders: Sequence[int]) -> Outcome:
    """Produce, then fetch what was produced."""
    if plan.case.client is Client.PREBUILT:
        produced = produce_prebuilt(plan, leaders, BYTES_MAX)
        return Outcome(produce=produced, fetch=fetch_prebuilt(plan))
    consumer = _consumer(plan)
    produced = produce(plan, leaders, consumer)
    fetched = fetch(plan, consumer, produced.bytes)
    consumer.close()
    return Outcome(produce=produced, fetch=fetched)


def measure_produce(plan: Plan, leaders: Sequence[int]) -> Figure:
    """Produce alone."""
    if plan.case.client is Client.PREBUILT:
        return produce_prebuilt(plan, leaders, BYTES_MAX)
    consumer = _consumer(plan)
    produced = produce(plan, leaders, consumer)
    consumer.close()
    return produced


# Throughput through librdkafka


def produce(plan: Plan, leaders: Sequence[int], consumer: Consumer) -> Figure:
    """As fast as possible to all partitions in turn, until the log has every record."""
    case = plan.case
    producer = Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            "acks": case.acks,
            "compression.type": case.codec.name.lower(),
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * QUEUED_RECORDS_MAX,
            "queue.buffering.max.kbytes": 2 * QUEUED_BYTES_MAX // 1024,
            "delivery.report.only.error": True,
        }
    )
    chunks = _chunks(case)
    per_chunk = len(next(chunks))
    queued_max = min(QUEUED_RECORDS_MAX, QUEUED_BYTES_MAX // case.record_size)
    producer.list_topics(plan.topic, timeout=TIMEOUT_SECONDS)
    count = 0
    watch = Stopwatch(plan, leaders)
    while watch.seconds < plan.seconds and count * case.record_size < BYTES_MAX:
        for partition in range(case.partitions):
            while len(producer) + per_chunk > queued_max:
                producer.poll(0.001)
            taken = producer.produce_batch(plan.topic, next(chunks), partition=partition)
            assert taken == per_chunk, "librdkafka refused records"
            count += taken
        producer.poll(0)
    left = producer.flush(TIMEOUT_SECONDS)
    assert not left, f"{left} records were not delivered"
    _wait_until(lambda: _stored(consumer, plan) >= count)
    figure = watch.figure(count * case.record_size)
    stored = _stored(consumer, plan)
    assert stored == count, f"{stored} records are stored of {count}"
    return figure


def fetch(plan: Plan, consumer: Consumer, size: int) -> Figure:
    """All partitions from their start, until `size` bytes of values are here."""
    fetched = 0
    watch = Stopwatch(plan)
    consumer.assign([TopicPartition(plan.topic, index, 0) for index in range(plan.case.partitions)])
    while fetched < size:
        messages = consumer.consume(CONSUMED_AT_ONCE_MAX, timeout=0.05)
        fetched += len(messages) * plan.case.record_size
        assert watch.seconds < TIMEOUT_SECONDS, f"{fetched} of {size} bytes came"
    return watch.figure(size)


def _consumer(plan: Plan) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": plan.bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": QUEUED_RECORDS_MAX,
            "fetch.queue.backoff.ms": 2,
        }
    )


def _chunks(case: Case) -> Iterator[list[dict[str, bytes]]]:
    """Records for librdkafka, the same few lists again and again."""
    values = record_values(case.record_size)
    # Over many partitions a chunk is what a producer's linger may well collect for one of them.
    records_max = max(CHUNK_RECORDS_MAX // case.partitions, 20)
    count = max(min(CHUNK_BYTES // case.partitions // case.record_size, records_max), 1)
    lists = [
        [{"value": values[(index * count + number) % len(values)]} for number in range(count)]
        for index in range(8)
    ]
    while True:
        yield from lists


def _stored(consumer: Consumer, plan: Plan) -> int:
    ends = (
        consumer.get_watermark_offsets(TopicPartition(plan.topic, index), timeout=TIMEOUT_SECONDS)
        for index in range(plan.case.partitions)
    )
    return sum(high - low for low, high in ends)


# Latency


def measure_latency(plan: Plan) -> Latency:
    """Records at a steady rate, each sent at once; the time of the first ones does not count."""
    value = record_values(LATENCY_RECORD_SIZE)[0]
    latencies: list[float] = []

    def acknowledged(error: object, message: Message) -> None:
        assert error is None, f"a record was not delivered: {error}"
        latencies.append(message.latency())

    producer = Producer({"bootstrap.servers": plan.bootstrap, "acks": plan.case.acks, "linger.ms": 0})
    producer.list_topics(plan.topic, timeout=TIMEOUT_SECONDS)
    rate, total = plan.records_per_second, int(plan.seconds * plan.records_per_second)
    sent = 0
    watch = Stopwatch(plan)
    while sent < total:
        due = min(int(watch.seconds * rate) + 1, total)
        for _ in range(due - sent):
            producer.produce(plan.topic, value, partition=0, on_delivery=acknowledged)
        sent = due
        while (left := sent / rate - watch.seconds) > 0:
            producer.poll(left)
    assert not producer.flush(TIMEOUT_SECONDS), "records were not delivered"
    figure = watch.figure(total * LATENCY_RECORD_SIZE)
    counted = sorted(latencies[int(total * LATENCY_WARM_UP) :])
    return Latency(
        rate=total / figure.seconds,
        median_ms=counted[len(counted) // 2] * 1e3,
        p99_ms=counted[len(counted) * 99 // 100] * 1e3,
        cpu_seconds=figure.cpu_seconds,
        seconds=figure.seconds,
    )


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while not is_so():
        assert time.perf_counter() < deadline, "the server did not get there in time"
        time.sleep(0.002)


if __name__ == "__main__":
    main()
