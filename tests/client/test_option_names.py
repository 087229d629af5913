from __future__ import annotations

import pytest

from broker.client.cluster import Routing
from broker.client.encoders import DefaultEncoder, StringEncoder
from broker.client.event_handler import EventHandler
from broker.client.option_names import read_options
from broker.client.partitioner import ConsistentPartitioner, RoundRobinPartitioner
from broker.client.producer import WhenFull
from broker.client.producer_options import PRODUCER_OPTIONS, ProducerOptions, open_producer
from broker.client.security.connection_security import ConnectionSecurity
from broker.errors import ConfigurationError
from broker.records.batch import Codec
from broker.types import HostPort
from tests.client.leaders import ProducingPeer
from tests.client.peers import serving
from tests.client.running import run


class Handler(EventHandler):
    """To be found by its path."""


def test_names_of_the_first_producers_mean_what_they_meant() -> None:
    options = ProducerOptions.read(
        {
            "broker.list": "0:10.0.0.1:9092,1:10.0.0.2:9092",
            "producer.type": "async",
            "queue.time": 5000,
            "queue.size": "10000",
            "batch.size": "200",
            "queue.enqueueTimeout.ms": "0",
            "serializer.class": "kafka.serializer.StringEncoder",
            "partitioner.class": "round_robin",
            "event.handler": f"{__name__}.Handler",
            "callback.handler": f"{__name__}:Handler",
            "compression.codec": "2",
            "compressed.topics": "a,b",
            "buffer.size": "102400",
            "connect.timeout.ms": 5000,
            "socket.timeout.ms": 30000,
            "max.message.size": 1000000,
            "num.retries": 0,
        }
    )
    settings, parts = options.settings, options.parts
    assert options.cluster.bootstrap == (HostPort("10.0.0.1", 9092), HostPort("10.0.0.2", 9092))
    assert (settings.linger_ms, settings.buffer_records, settings.batch_records) == (5000, 10000, 200)
    assert (settings.when_full, settings.sync, settings.retries) == (WhenFull.DROP, False, 0)
    assert (settings.codec, settings.codec_for("a"), settings.codec_for("c")) == (
        Codec.SNAPPY,
        Codec.SNAPPY,
        Codec.NONE,
    )
    assert (settings.request_timeout_ms, settings.max_request_bytes) == (30_000, 1_000_000)
    assert (options.cluster.connection.send_buffer_bytes, options.cluster.connection.connect_timeout_ms) == (
        102_400,
        5_000,
    )
    assert isinstance(parts.partitioner, RoundRobinPartitioner)
    assert isinstance(parts.key_encoder, StringEncoder)
    assert isinstance(parts.value_encoder, StringEncoder)
    assert [type(handler) for handler in parts.handlers] == [Handler, Handler]


def test_names_of_the_second_producers_mean_what_they_meant() -> None:
    options = ProducerOptions.read(
        {
            "metadata.broker.list": "a:1",
            "request.required.acks": "1",
            "producer.type": "sync",
            "queue.buffering.max.ms": "7",
            "batch.num.messages": "9",
            "queue.enqueue.timeout.ms": "-1",
            "message.send.max.retries": 3,
            "retry.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 600_000,
            "key.serializer.class": "kafka.serializer.DefaultEncoder",
            "serializer.class": "kafka.serializer.StringEncoder",
            "compression.codec": "gzip",
        }
    )
    settings = options.settings
    assert (settings.acks, settings.idempotent, settings.sync) == (1, False, True)
    assert (settings.linger_ms, settings.batch_records, settings.retries) == (7, 9, 3)
    assert (settings.when_full, settings.max_block_ms) == (WhenFull.BLOCK, 2**31 - 1)
    assert settings.metadata_max_age_ms == 600_000
    assert options.cluster.backoff.initial_ms == 100
    assert settings.codec is Codec.GZIP
    assert isinstance(options.parts.key_encoder, DefaultEncoder)


def test_present_names_mean_what_javas_clients_mean() -> None:
    options = ProducerOptions.read(
        {
            "bootstrap.servers": ["a:1", "b:2"],
            "acks": "all",
            "batch.size": 1000,
            "compression.type": "zstd",
            "block.on.buffer.full": False,
            "transactional.id": "orders",
            "partitioner": "consistent",
            "routing": "single",
            "queue.enqueue.timeout.ms": 5,
        }
    )
    settings = options.settings
    assert (settings.acks, settings.idempotent, settings.batch_bytes) == (-1, True, 1000)
    assert (settings.when_full, settings.drop_after_ms) == (WhenFull.DROP, 5)
    assert settings.transactional_id == "orders"
    assert options.cluster.routing is Routing.SINGLE
    assert isinstance(options.parts.partitioner, ConsistentPartitioner)


def test_everything_that_is_wrong_is_told_at_once_with_what_may_be_meant() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ProducerOptions.read(
            {
                "linger.msec": 5,
                "bootstrap.servers": "nowhere",
                "queue.time": 1,
                "linger.ms": 2,
                "acks": "many",
                "compression.type": "rar",
            }
        )
    assert raised.value.problems == [
        "linger.msec: unknown option (did you mean linger.ms?)",
        "bootstrap.servers: 'nowhere' is not host:port",
        "linger.ms: the same option as queue.time, which is given too",
        "acks: expected one of all, -1, 0, 1, not 'many'",
        "compression.type: expected one of none, gzip, snappy, lz4, zstd, not 'rar'",
    ]


def test_parts_that_are_not_there_and_settings_that_contradict_are_told() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ProducerOptions.read(
            {
                "partitioner.class": "no.such.module.Class",
                "event.handler": f"{__name__}.Missing",
                "interceptor.classes": "builtins.object",
                "serializer.class": "missing",
                "acks": "1",
                "enable.idempotence": True,
            }
        )
    assert raised.value.problems == [
        f"event.handler: '{__name__}.Missing': {__name__} has no class Missing",
        "interceptor.classes: 'builtins.object' is no EventHandler",
        "partitioner.class: 'no.such.module.Class': No module named 'no'",
        "key.serializer: 'missing' is no name that is known, nor package.module.Class",
        "value.serializer: 'missing' is no name that is known, nor package.module.Class",
        "bootstrap.servers or zookeeper.connect: exactly one of them is needed",
        "an idempotent producer needs acks -1, not 1",
    ]


def test_no_name_stands_for_two_options() -> None:
    names = [name for option in PRODUCER_OPTIONS for name in (option.name, *option.aliases)]
    assert len(set(names)) == len(names)
    assert read_options({}, PRODUCER_OPTIONS) == {}


def test_a_producer_is_opened_by_its_options() -> None:
    async def main() -> None:
        peer = ProducingPeer()
        async with serving([peer], partitions=1):
            given = {
                "broker.list": f"1:{peer.address}",
                "serializer.class": "string",
                "producer.type": "sync",
            }
            async with open_producer(given) as producer:
                assert (await producer.send("t", "text")).result().offset == 0
        assert peer.log("t", 0).values == [b"text"]

    run(main)


def test_passwords_are_taken_as_they_are() -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ada",
        "sasl.password": " pencil ",
    }
    options = ProducerOptions.read({"bootstrap.servers": "127.0.0.1:9093", **given})
    assert options.cluster.connection.security == ConnectionSecurity.from_options(given)
    assert "pencil" not in repr(options)
