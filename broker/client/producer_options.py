"""A producer out of options by name: the names of Kafka's producers, present and former.

    async with open_producer({"zk.connect": "127.0.0.1:2181", "producer.type": "async"}) as producer:
        await producer.send("topic", b"value")

Before 0.8 `batch.size` counted records, later bytes. It counts records where any other option is given by a
name that only those producers knew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from broker.client.cluster_options import CLUSTER_OPTIONS, ClusterOptions
from broker.client.encoders import DefaultEncoder, Encoder, JsonEncoder, StringEncoder
from broker.client.event_handler import EventHandler
from broker.client.option_names import Option, numbered, read_options
from broker.client.partitioner import (
    ConsistentPartitioner,
    Crc32Partitioner,
    Murmur2Partitioner,
    Partitioner,
    RandomPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)
from broker.client.parts import load_part
from broker.client.producer import Producer
from broker.client.producer_parts import ProducerParts
from broker.client.producer_settings import ProducerSettings, WhenFull
from broker.client.transactional_producer import TransactionalProducer
from broker.errors import ConfigurationError
from broker.records.batch import Codec
from broker.settings import INT_MAX, boolean, double, integer, long, names, optional_string, string

PARTITIONERS: Mapping[str, type[Partitioner]] = {
    "murmur2": Murmur2Partitioner,
    "murmur2_random": Murmur2Partitioner,
    "consistent": ConsistentPartitioner,
    "consistent_random": Crc32Partitioner,
    "crc32": Crc32Partitioner,
    "random": RandomPartitioner,
    "sticky": StickyPartitioner,
    "round_robin": RoundRobinPartitioner,
    "kafka.producer.DefaultPartitioner": Murmur2Partitioner,
    "kafka.producer.ByteArrayPartitioner": Murmur2Partitioner,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": Murmur2Partitioner,
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": StickyPartitioner,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": RoundRobinPartitioner,
}
"""By name, as librdkafka and Java's clients have them."""
ENCODERS: Mapping[str, type[Encoder]] = {
    "bytes": DefaultEncoder,
    "string": StringEncoder,
    "json": JsonEncoder,
    "kafka.serializer.DefaultEncoder": DefaultEncoder,
    "kafka.serializer.StringEncoder": StringEncoder,
    "org.apache.kafka.common.serialization.ByteArraySerializer": DefaultEncoder,
    "org.apache.kafka.common.serialization.StringSerializer": StringEncoder,
}

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_CODECS = {codec.name.lower(): codec.value for codec in Codec}

PRODUCER_OPTIONS = (
    *CLUSTER_OPTIONS,
    Option(name="producer.type", kind=string(("sync", "async"))),
    Option(name="acks", kind=numbered(_ACKS), aliases=("request.required.acks",)),
    Option(name="enable.idempotence", kind=boolean()),
    Option(name="compression.type", kind=numbered(_CODECS), aliases=("compression.codec",)),
    Option(name="compression.level", kind=integer()),
    Option(name="compressed.topics", kind=names()),
    Option(name="linger.ms", kind=double(0), aliases=("queue.buffering.max.ms", "queue.time")),
    Option(name="batch.size", kind=integer(1)),
    Option(name="batch.num.messages", kind=integer(1)),
    Option(name="buffer.memory", kind=long(1)),
    Option(name="queue.buffering.max.messages", kind=integer(1), aliases=("queue.size",)),
    Option(name="queue.enqueue.timeout.ms", kind=integer(-1), aliases=("queue.enqueueTimeout.ms",)),
    Option(name="block.on.buffer.full", kind=boolean()),
    Option(name="max.block.ms", kind=long(0)),
    Option(name="max.in.flight.requests.per.connection", kind=integer(1)),
    Option(name="max.request.size", kind=integer(1), aliases=("max.message.size",)),
    Option(name="delivery.timeout.ms", kind=integer(1)),
    Option(name="retries", kind=integer(0), aliases=("message.send.max.retries", "num.retries")),
    Option(name="metadata.max.age.ms", kind=long(1), aliases=("topic.metadata.refresh.interval.ms",)),
    Option(name="transactional.id", kind=optional_string()),
    Option(name="transaction.timeout.ms", kind=integer(1)),
    Option(name="partitioner.class", kind=string(), aliases=("partitioner",)),
    Option(name="key.serializer", kind=string(), aliases=("key.serializer.class",)),
    Option(name="value.serializer", kind=string(), aliases=("serializer.class",)),
    Option(name="event.handler", kind=string()),
    Option(name="callback.handler", kind=string()),
    Option(name="interceptor.classes", kind=names()),
)

_FIRST_PRODUCERS = frozenset(
    {"broker.list", "zk.connect", "queue.time", "queue.size", "queue.enqueueTimeout.ms", "num.retries"}
)
"""Names that only producers before 0.8 knew."""
_SETTINGS: Mapping[str, str] = {
    "acks": "acks",
    "enable.idempotence": "idempotent",
    "compression.level": "compression_level",
    "linger.ms": "linger_ms",
    "batch.size": "batch_bytes",
    "batch.num.messages": "batch_records",
    "buffer.memory": "buffer_bytes",
    "queue.buffering.max.messages": "buffer_records",
    "max.block.ms": "max_block_ms",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "max.request.size": "max_request_bytes",
    "request.timeout.ms": "request_timeout_ms",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "retries": "retries",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Everything that makes a producer."""

    cluster: ClusterOptions
    settings: ProducerSettings
    parts: ProducerParts

    @classmethod
    def read(cls, given: Mapping[str, object]) -> ProducerOptions:
        """Options by name. Raises ConfigurationError with all that is wrong with them."""
        values = read_options(_with_counted_batches(given), PRODUCER_OPTIONS)
        problems: list[str] = []
        parts = _parts(values, problems)
        cluster = ClusterOptions.of(values, problems)
        try:
            settings = _settings(values)
        except ConfigurationError as error:
            problems += error.problems
        if problems:
            raise ConfigurationError(problems)
        return cls(cluster=cluster, settings=settings, parts=parts)


@asynccontextmanager
async def open_producer(given: Mapping[str, object] | ProducerOptions) -> AsyncIterator[Producer]:
    """A running producer with connections of its own; with a transactional id, a TransactionalProducer.

    Raises ConfigurationError, ConnectionFailedError, and CoordinationError when ZooKeeper is not reached.
    """
    options = given if isinstance(given, ProducerOptions) else ProducerOptions.read(given)
    async with options.cluster.opened() as cluster:
        kind = Producer if options.settings.transactional_id is None else TransactionalProducer
        async with kind(cluster, settings=options.settings, parts=options.parts) as producer:
            yield producer


def _with_counted_batches(given: Mapping[str, object]) -> Mapping[str, object]:
    if "batch.size" not in given or not _FIRST_PRODUCERS & given.keys():
        return given
    return {("batch.num.messages" if name == "batch.size" else name): given[name] for name in given}


def _settings(values: Mapping[str, Any]) -> ProducerSettings:
    fields = {field: values[name] for name, field in _SETTINGS.items() if name in values}
    if values.get("acks", -1) != -1:
        fields.setdefault("idempotent", False)
    if "compression.type" in values:
        fields["codec"] = Codec(values["compression.type"])
    fields["compressed_topics"] = frozenset(values.get("compressed.topics", ()))
    fields["sync"] = values.get("producer.type") == "sync"
    if not values.get("block.on.buffer.full", True):
        fields["when_full"] = WhenFull.DROP
    match values.get("queue.enqueue.timeout.ms"):
        case None:
            pass
        case -1:
            fields["max_block_ms"] = INT_MAX
        case 0:
            fields["when_full"] = WhenFull.DROP
        case wait_ms:
            fields["when_full"], fields["drop_after_ms"] = WhenFull.DROP, wait_ms
    return ProducerSettings(**fields)


def _parts(values: Mapping[str, Any], problems: list[str]) -> ProducerParts:
    def part(name: str, known: Mapping[str, type[Any]], of: str) -> Any:
        return _load(name, of, known, problems) if of else None

    value_encoder = values.get("value.serializer", "")
    handlers = [
        handler
        for name in ("event.handler", "callback.handler", "interceptor.classes")
        for path in _listed(values.get(name, ()))
        if (handler := _handler(name, path, problems)) is not None
    ]
    return ProducerParts(
        partitioner=part("partitioner.class", PARTITIONERS, values.get("partitioner.class", "")),
        key_encoder=part("key.serializer", ENCODERS, values.get("key.serializer", value_encoder)),
        value_encoder=part("value.serializer", ENCODERS, value_encoder),
        handlers=handlers,
    )


def _handler(name: str, path: str, problems: list[str]) -> EventHandler | None:
    handler = _load(name, path, {}, problems)
    if handler is not None and not isinstance(handler, EventHandler):
        problems.append(f"{name}: {path!r} is no EventHandler")
        return None
    return handler


def _load(name: str, path: str, known: Mapping[str, type[Any]], problems: list[str]) -> Any:
    try:
        return load_part(path, known)
    except (TypeError, ValueError) as error:
        problems.append(f"{name}: {error}")
        return None


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value
