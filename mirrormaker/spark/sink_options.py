"""Options of writing, under the names of Spark's own Kafka sink; every problem is told at once.

Those of Java's producer that there is nothing of here are let pass, as on the reading side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from broker.client.producer_settings import ProducerSettings
from broker.errors import ConfigurationError
from broker.records.batch import Codec
from broker.records.compression import LEVELS
from mirrormaker.spark.given_options import (
    GivenOptions,
    one_of,
    parse_boolean,
    parse_count,
    parse_size,
    parse_size_or_zero,
    parse_text,
)
from mirrormaker.spark.java_settings import WRITING_PASSED, WRITING_REFUSED
from mirrormaker.spark.options import CLIENT_ID, ClusterOptions
from mirrormaker.spark.options import OPTION_NAMES as READING_NAMES
from mirrormaker.spark.row_encoder import BatchTerms

OPTION_NAMES = (
    "topic",
    "includeHeaders",
    "delivery",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.zstd.level",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.request.timeout.ms",
    "kafka.retries",
    "kafka.transaction.timeout.ms",
)
_FOR_SPARK = ("checkpointLocation", "queryName")
"""What Spark hands over with the options, and looks at itself."""
_READING = "is for reading: a view on topics cannot be written, df.write names its topic by option or column"
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = {codec.name.lower(): codec for codec in Codec}
_BATCH_BYTES = 256 * 1024
_TRANSACTION_TIMEOUT_MS = 600_000
"""A transaction is as long as its task; one whose task died is ended by the next attempt."""


class SinkDelivery(Enum):
    """How often a row may be written."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteId:
    """What a `df.write` is known by when it is repeated: who writes, and which of its writes it is."""

    app: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What one write was asked to do."""

    cluster: ClusterOptions
    topic: str | None
    """For all rows; without it each row names its own."""
    include_headers: bool
    delivery: SinkDelivery
    id_prefix: str
    write_id: WriteId | None
    batches: BatchTerms
    producer: ProducerSettings


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of one write. Raises ConfigurationError with every problem found."""
    given = GivenOptions(options)
    known = (*OPTION_NAMES, *_FOR_SPARK, *WRITING_PASSED, *WRITING_REFUSED)
    given.refuse_unknown(known, dict.fromkeys(READING_NAMES, _READING))
    given.refuse(WRITING_REFUSED)
    delivery = given.read(
        "delivery", one_of({choice.value: choice for choice in SinkDelivery}), SinkDelivery.AT_LEAST_ONCE
    )
    parsed = SinkOptions(
        cluster=ClusterOptions(
            bootstrap=given.servers(),
            client_id=given.read("kafka.client.id", parse_text, CLIENT_ID),
            request_timeout_ms=given.read("kafka.request.timeout.ms", parse_size, 30_000),
            security=given.security(),
        ),
        topic=given.read("topic", parse_text, None),
        include_headers=given.read("includeHeaders", parse_boolean, True),
        delivery=delivery,
        id_prefix=given.read("transactionalIdPrefix", parse_text, CLIENT_ID),
        write_id=_read_write_id(given),
        batches=_read_batches(given),
        producer=_read_producer(given, delivery),
    )
    if delivery is SinkDelivery.AT_LEAST_ONCE:
        no_effect = "has no effect without delivery=exactly_once"
        names = ("transactionalIdPrefix", "txnAppId", "txnVersion", "kafka.transaction.timeout.ms")
        given.refuse(dict.fromkeys(names, no_effect))
    given.raise_problems()
    return parsed


def _read_write_id(given: GivenOptions) -> WriteId | None:
    app = given.read("txnAppId", parse_text, "")
    version = given.read("txnVersion", parse_count, 0)
    if given.has("txnAppId") != given.has("txnVersion"):
        given.problems.append("option txnAppId and option txnVersion: one has no effect without the other")
    return WriteId(app=app, version=version) if app else None


def _read_batches(given: GivenOptions) -> BatchTerms:
    codec = given.read("kafka.compression.type", one_of(_CODECS), Codec.NONE)
    level = None
    for leveled in LEVELS:
        name = f"kafka.compression.{leveled.name.lower()}.level"
        if given.has(name) and leveled is not codec:
            given.problems.append(f"option {name}: has no effect with compression.type {codec.name.lower()}")
        elif given.has(name):
            level = given.read(name, _level_of(leveled), 0)
    return BatchTerms(
        codec=codec,
        level=level,
        bytes_max=given.read("kafka.batch.size", parse_size_or_zero, _BATCH_BYTES),
    )


def _level_of(codec: Codec) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if int(text) not in LEVELS[codec]:
            raise ValueError(
                f"{text} is none of the levels {LEVELS[codec].start} to {LEVELS[codec].stop - 1}"
            )
        return int(text)

    return parse


def _read_producer(given: GivenOptions, delivery: SinkDelivery) -> ProducerSettings:
    defaults = ProducerSettings()
    acks = given.read("kafka.acks", one_of(_ACKS), defaults.acks)
    try:
        return ProducerSettings(
            acks=acks,
            idempotent=given.read("kafka.enable.idempotence", parse_boolean, acks == defaults.acks),
            buffer_bytes=given.read("kafka.buffer.memory", parse_size, defaults.buffer_bytes),
            max_in_flight=given.read(
                "kafka.max.in.flight.requests.per.connection", parse_size, defaults.max_in_flight
            ),
            max_request_bytes=given.read("kafka.max.request.size", parse_size, defaults.max_request_bytes),
            request_timeout_ms=given.read(
                "kafka.request.timeout.ms", parse_size, defaults.request_timeout_ms
            ),
            delivery_timeout_ms=given.read(
                "kafka.delivery.timeout.ms", parse_size, defaults.delivery_timeout_ms
            ),
            retries=given.read("kafka.retries", parse_count, defaults.retries),
            max_block_ms=given.read("kafka.max.block.ms", parse_count, defaults.max_block_ms),
            transactional_id=None if delivery is SinkDelivery.AT_LEAST_ONCE else "",
            transaction_timeout_ms=given.read(
                "kafka.transaction.timeout.ms", parse_size, _TRANSACTION_TIMEOUT_MS
            ),
        )
    except ConfigurationError as error:
        given.problems += error.problems
        return defaults
