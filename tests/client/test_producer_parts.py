"""What programs plug into a producer, and what it does when it is full, synchronous, or bounded otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.client.cluster import Cluster
from broker.client.encoders import DefaultEncoder, JsonEncoder, StringEncoder
from broker.client.event_handler import BatchFacts, EventHandler
from broker.client.partitioner import RoundRobinPartitioner, StickyPartitioner
from broker.client.producer import (
    Delivery,
    Producer,
    ProducerParts,
    ProducerRecord,
    ProducerSettings,
    WhenFull,
)
from broker.errors import BrokerError, BufferFullError, ErrorCode, ProtocolError
from broker.records.batch import Codec, read_header
from broker.types import Buffer, TopicPartition
from broker.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.client.leaders import ProducingPeer
from tests.client.peers import PeerCluster, serving
from tests.client.running import QUICK, run, until
from tests.client.test_producer import CONNECTIONS, SETTINGS


@asynccontextmanager
async def producing(
    settings: ProducerSettings = SETTINGS, *, partitions: int = 1, **parts: Any
) -> AsyncIterator[tuple[Producer, PeerCluster, ProducingPeer]]:
    """A producer with these parts, and the scripted node that it produces to."""
    peer = ProducingPeer()
    async with (
        serving([peer], partitions=partitions) as scripted,
        Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
        Producer(
            cluster,
            settings=settings,
            parts=ProducerParts(**{"partitioner": RoundRobinPartitioner(), **parts}),
        ) as producer,
    ):
        yield producer, scripted, peer


class Recorder(EventHandler):
    """Writes down what it is told; stages may be made to fail."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.replacement: Any = "same"

    def before_enqueue(self, record: ProducerRecord) -> ProducerRecord | None:
        self.told.append(("before_enqueue", record.value))
        return record if self.replacement == "same" else self.replacement

    def after_enqueue(self, record: ProducerRecord, delivery: Delivery) -> None:
        self.told.append(("after_enqueue", record.value, delivery.done()))

    def before_sending(self, batch: BatchFacts) -> None:
        self.told.append(("before_sending", batch.topic_partition, batch.count, batch.attempts))

    def acknowledged(self, batch: BatchFacts, base_offset: int) -> None:
        self.told.append(("acknowledged", batch.count, base_offset))

    def given_up(self, batch: BatchFacts, error: BrokerError) -> None:
        self.told.append(("given_up", batch.count, str(error)))

    def close(self) -> None:
        self.told.append(("close",))


class Failing(EventHandler):
    def before_sending(self, batch: BatchFacts) -> None:
        raise RuntimeError("a program's own fault")


def test_handlers_are_told_of_every_stage_in_order() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with producing(handlers=[Failing(), recorder]) as (producer, _, peer):
            answers = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
            peer.trouble = lambda partition, batch: next(answers, ErrorCode.NONE)
            await (await producer.send("t", b"a"))
            await producer.flush()
            peer.trouble = lambda partition, batch: ErrorCode.INVALID_RECORD
            await producer.send("t", b"b")
            await producer.flush()
        assert recorder.told == [
            ("before_enqueue", b"a"),
            ("after_enqueue", b"a", False),
            ("before_sending", ("t", 0), 1, 1),
            ("before_sending", ("t", 0), 1, 2),
            ("acknowledged", 1, 0),
            ("before_enqueue", b"b"),
            ("after_enqueue", b"b", False),
            ("before_sending", ("t", 0), 1, 1),
            ("given_up", 1, f"INVALID_RECORD: t-0: {ErrorCode.INVALID_RECORD.meaning}"),
            ("close",),
        ]

    run(main)


def test_why_batches_are_given_up_is_logged_once_until_one_is_taken_or_the_reason_is_another() -> None:
    lacking, damaged = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD
    codes = [lacking, lacking, damaged, lacking, ErrorCode.NONE, lacking]

    async def main() -> None:
        recorder = Recorder()
        async with producing(handlers=[recorder]) as (producer, _, peer):
            for code in codes:
                peer.trouble = lambda partition, batch, code=code: code
                await producer.send("t", b"a")
                await producer.flush()
        assert [each[0] for each in recorder.told].count("given_up") == 5

    with capture_logs() as logs:
        run(main)
    told = [each["error"].split(":")[0] for each in logs if each["event"] == "batch_given_up"]
    assert told == [lacking.name, damaged.name, lacking.name, lacking.name]


def test_a_handler_changes_and_filters_records() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with producing(partitions=2, handlers=[recorder]) as (producer, _, peer):
            recorder.replacement = ProducerRecord("t", b"changed", partition=1)
            assert (await (await producer.send("t", b"a", partition=0))).partition == 1
            recorder.replacement = None
            assert await (await producer.send("t", b"b", partition=0, timestamp_ms=5)) == ("t", 0, -1, 5)
            assert peer.log("t", 0).values == []
            assert peer.log("t", 1).values == [b"changed"]
            assert producer.metrics.records_filtered == 1

    run(main)


class Wayward(StickyPartitioner):
    """Chooses what there is not, and fails when it is told of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: Any = 0

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        chosen: int = self.chosen
        return chosen

    def batch_closed(self, topic: str, partition: int) -> None:
        raise RuntimeError("a program's own fault")


@pytest.mark.parametrize("chosen", [-1, 2])
def test_a_partitioner_that_chooses_no_partition_of_the_topic_ends_the_send(chosen: int) -> None:
    async def main() -> None:
        partitioner = Wayward()
        async with producing(partitions=2, partitioner=partitioner) as (producer, _, _peer):
            partitioner.chosen = chosen
            with pytest.raises(ProtocolError, match=f"no partition {chosen}"):
                await producer.send("t", b"a")
            assert producer.buffered_bytes == 0

    run(main)


def test_a_partitioner_that_fails_when_told_of_a_batch_holds_nothing_up() -> None:
    async def main() -> None:
        settings = replace(SETTINGS, batch_records=1, linger_ms=60_000)
        async with producing(settings, partitioner=Wayward()) as (producer, _, peer):
            for value in (b"a", b"b", b"c"):
                await producer.send("t", value)
            await producer.flush()
            assert peer.log("t", 0).values == [b"a", b"b", b"c"]

    run(main)


def test_encoders_make_bytes_of_keys_and_values() -> None:
    async def main() -> None:
        parts = {"key_encoder": StringEncoder(), "value_encoder": JsonEncoder()}
        async with producing(**parts) as (producer, _, peer):
            await producer.send_all([ProducerRecord("t", {"ä": [1, None]}, "schlüssel")])  # type: ignore[arg-type]
            await (await producer.send("t", None, "key"))
            assert peer.log("t", 0).values == ['{"ä":[1,null]}'.encode(), b""]
            with pytest.raises(TypeError, match="t: text is expected, not int"):
                await producer.send("t", 1, key=1)

    run(main)


def test_the_default_encoder_passes_bytes_and_nothing_else() -> None:
    encoder = DefaultEncoder()
    assert [encoder.encode("t", data) for data in (b"a", bytearray(b"b"), memoryview(b"c"), None)] == [
        b"a",
        b"b",
        b"c",
        None,
    ]
    with pytest.raises(TypeError, match="t: a record holds bytes, not str"):
        encoder.encode("t", "text")


def test_what_does_not_fit_is_dropped_where_so_set_and_counted() -> None:
    async def main() -> None:
        settings = replace(SETTINGS, buffer_records=2, when_full=WhenFull.DROP, linger_ms=60_000)
        gate = asyncio.Event()
        async with producing(settings) as (producer, _, peer):

            async def gated(request: ProduceRequest) -> ProduceResponse | None:
                await gate.wait()
                return peer.produce(request)

            peer.on(ProduceRequest, gated)
            kept = [await producer.send("t", b"%d" % number) for number in range(2)]
            dropped = await producer.send("t", b"2", timestamp_ms=9)
            with pytest.raises(
                BufferFullError, match=r"no room for 71 bytes .* within 0 ms: 2 records of 142"
            ):
                await dropped
            gate.set()
            assert [(await delivery).offset for delivery in kept] == [0, 1]
            assert (await producer.send("t", b"3")).done() is False
            await producer.flush()
            metrics = producer.metrics
            assert (metrics.records_dropped, metrics.records_acknowledged) == (1, 3)

    run(main)


def test_a_record_may_wait_a_little_for_room_before_it_is_dropped() -> None:
    async def main() -> None:
        settings = replace(
            SETTINGS, buffer_records=1, when_full=WhenFull.DROP, drop_after_ms=10_000, linger_ms=60_000
        )
        async with producing(settings) as (producer, _, _peer):
            deliveries = [await producer.send("t", b"%d" % number) for number in range(5)]
            await producer.flush()
            assert [delivery.result().offset for delivery in deliveries] == list(range(5))

    run(main)


def test_a_synchronous_producer_returns_when_all_is_written_and_raises_what_went_wrong() -> None:
    async def main() -> None:
        async with producing(replace(SETTINGS, sync=True, linger_ms=60_000), partitions=2) as (
            producer,
            _,
            peer,
        ):
            assert (await producer.send("t", b"a", timestamp_ms=4)).result() == ("t", 0, 0, 4)
            assert peer.log("t", 0).values == [b"a"]
            records = [ProducerRecord("t", b"%d" % number, partition=1) for number in range(10)]
            deliveries = await producer.send_all(records)
            assert [delivery.result().offset for delivery in deliveries] == list(range(10))
            assert len(peer.seen(ProduceRequest)) == 2
            peer.trouble = lambda partition, batch: ErrorCode.INVALID_RECORD
            with pytest.raises(ProtocolError, match="INVALID_RECORD"):
                await producer.send("t", b"b")

    run(main)


def test_a_batch_takes_so_many_records_at_most() -> None:
    async def main() -> None:
        async with producing(replace(SETTINGS, batch_records=3, linger_ms=60_000)) as (producer, _, peer):
            counts: list[int] = []

            def look(_: TopicPartition, batch: Buffer) -> ErrorCode:
                counts.append(read_header(batch).record_count)
                return ErrorCode.NONE

            peer.trouble = look
            for number in range(8):
                await producer.send("t", b"%d" % number)
            await producer.flush()
            assert counts == [3, 3, 2]

    run(main)


def test_only_the_topics_that_are_named_are_compressed() -> None:
    async def main() -> None:
        settings = replace(SETTINGS, codec=Codec.GZIP, compressed_topics=frozenset({"u"}))
        async with producing(settings) as (producer, scripted, peer):
            scripted.leaders["u"] = [1]
            codecs: dict[str, Codec] = {}

            def look(partition: TopicPartition, batch: Buffer) -> ErrorCode:
                codecs[partition.topic] = read_header(batch).codec
                return ErrorCode.NONE

            peer.trouble = look
            await producer.send("t", b"v")
            await producer.send("u", b"v")
            await producer.flush()
            assert codecs == {"t": Codec.NONE, "u": Codec.GZIP}

    run(main)


def test_a_batch_is_sent_again_as_often_as_set() -> None:
    async def main() -> None:
        async with producing(replace(SETTINGS, retries=2)) as (producer, _, peer):
            peer.trouble = lambda partition, batch: ErrorCode.NOT_ENOUGH_REPLICAS
            with pytest.raises(ProtocolError, match="NOT_ENOUGH_REPLICAS"):
                await (await producer.send("t", b"v"))
            assert len(peer.seen(ProduceRequest)) == 3
            assert producer.metrics.batches_repeated == 2

    run(main)


def test_closing_with_a_deadline_ends_every_send() -> None:
    async def main() -> None:
        async with producing(replace(SETTINGS, linger_ms=0)) as (producer, _, peer):
            peer.on(ProduceRequest, lambda _: None)
            deliveries = [await producer.send("t", b"%d" % number) for number in range(3)]
            await producer.close(timeout_ms=10)
            for delivery in deliveries:
                with pytest.raises(BrokerError, match="closed before this was written"):
                    delivery.result()

    run(main)


def test_metrics_tell_what_was_done_and_what_waits() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with producing(replace(SETTINGS, linger_ms=0)) as (producer, _, peer):

            async def gated(request: ProduceRequest) -> ProduceResponse | None:
                await gate.wait()
                return peer.produce(request)

            peer.on(ProduceRequest, gated)
            await producer.send("t", b"x" * 100)
            await until(lambda: producer.metrics.requests_in_flight == 1)
            waiting = producer.metrics
            assert (waiting.buffered_bytes, waiting.buffered_batches, waiting.requests) == (170, 1, 1)
            gate.set()
            await producer.flush()
            metrics = producer.metrics
            assert (metrics.records_acknowledged, metrics.batches_acknowledged) == (1, 1)
            assert metrics.bytes_acknowledged == metrics.batch_bytes_max == metrics.batch_bytes_mean
            assert (metrics.buffered_bytes, metrics.buffered_bytes_max) == (0, 170)
            assert metrics.request_latency.count == metrics.delivery_latency.count == 1
            assert metrics.delivery_latency.max_ms >= metrics.request_latency.p50_ms > 0

    run(main)
