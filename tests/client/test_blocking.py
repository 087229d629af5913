"""The blocking clients on scripted peers."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import pytest

from broker.client import blocking
from broker.client.admin import Admin as AsyncAdmin
from broker.client.blocking.loop_thread import LoopThread
from broker.client.connection import ConnectionSettings
from broker.client.consumer import Consumer as AsyncConsumer
from broker.client.consumer import ConsumerRecord, ConsumerSettings, OffsetReset, PartitionError
from broker.client.consumer_connector import ConsumerConnector as AsyncConsumerConnector
from broker.client.parking import Handler, ParkedRecord, RetryPolicy
from broker.client.producer import Producer as AsyncProducer
from broker.client.producer import ProducerRecord, ProducerSettings
from broker.client.rebalance_listener import RebalanceListener as AsyncRebalanceListener
from broker.client.record_stream import RecordStream as AsyncRecordStream
from broker.client.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from broker.client.transactional_producer import TransactionalProducer as AsyncTransactionalProducer
from broker.client.zookeeper_group_admin import ZooKeeperGroupAdmin as AsyncZooKeeperGroupAdmin
from broker.errors import ConfigurationError, ErrorCode, ProtocolError
from broker.types import TopicPartition
from tests.client.leaders import ProducingPeer
from tests.client.logs import ServingPeer
from tests.client.peers import Peer, PeerCluster, serving
from tests.client.running import QUICK

CONNECTIONS = ConnectionSettings(request_timeout_ms=5_000, connect_timeout_ms=5_000)
EARLIEST = ConsumerSettings(offset_reset=OffsetReset.EARLIEST, fetch_max_wait_ms=10)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)

COUNTERPARTS: list[tuple[type, type]] = [
    (blocking.Admin, AsyncAdmin),
    (blocking.Consumer, AsyncConsumer),
    (blocking.ConsumerConnector, AsyncConsumerConnector),
    (blocking.Producer, AsyncProducer),
    (blocking.RebalanceListener, AsyncRebalanceListener),
    (blocking.RecordStream, AsyncRecordStream),
    (blocking.SimpleConsumer, AsyncSimpleConsumer),
    (blocking.TransactionalProducer, AsyncTransactionalProducer),
    (blocking.ZooKeeperGroupAdmin, AsyncZooKeeperGroupAdmin),
]
OF_THE_LOOP_ALONE = {
    AsyncConsumer: {"member"},
    AsyncRecordStream: {
        "add", "end", "finish", "hold", "let_go", "position", "reader_is_back", "remove", "seek",
    },
}  # fmt: skip


@contextmanager
def connected(peer: Peer, *, partitions: int = 1) -> Iterator[tuple[blocking.Cluster, PeerCluster]]:
    """A blocking cluster of one scripted node, which runs on a loop of its own."""
    with (
        LoopThread("peers") as peers,
        peers.held(lambda: serving([peer], partitions=partitions)) as scripted,
        blocking.Cluster(scripted.bootstrap, settings=CONNECTIONS, backoff=QUICK) as cluster,
    ):
        yield cluster, scripted


@contextmanager
def consuming(*values: bytes) -> Iterator[blocking.Consumer]:
    """A consumer of one partition that holds these records in one batch."""
    peer = ServingPeer(1, logs={})
    with connected(peer, partitions=2) as (cluster, _), blocking.Consumer(cluster, settings=EARLIEST) as made:
        peer.log().append(*values)
        made.assign([ZERO])
        yield made


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("facade", "behind"), COUNTERPARTS)
def test_everything_that_the_asyncio_client_does_is_there_by_the_same_name(
    facade: type, behind: type
) -> None:
    assert public_names(behind) - OF_THE_LOOP_ALONE.get(behind, set()) - public_names(facade) == set()


@pytest.mark.parametrize(("facade", "behind"), COUNTERPARTS)
def test_parameters_are_those_of_the_asyncio_client(facade: type, behind: type) -> None:
    for name in public_names(facade) & public_names(behind):
        own, other = getattr(facade, name), getattr(behind, name)
        if inspect.isfunction(own):
            assert list(inspect.signature(own).parameters) == list(inspect.signature(other).parameters), name
            assert not inspect.iscoroutinefunction(own), name


def test_the_future_of_a_record_says_where_it_went() -> None:
    peer = ProducingPeer(1, logs={})
    with connected(peer) as (cluster, _), blocking.Producer(cluster) as producer:
        futures = [producer.send("t", b"%d" % number, timestamp_ms=7) for number in range(3)]
        futures += producer.send_all([ProducerRecord("t", b"3"), ProducerRecord("t", b"4")])
        assert [future.result(timeout=10).offset for future in futures] == [0, 1, 2, 3, 4]
        assert producer.metrics.records_acknowledged == 5
        assert not futures[0].cancel()


def test_a_synchronous_producer_blocks_until_the_record_is_written() -> None:
    peer = ProducingPeer(1, logs={})
    with (
        connected(peer) as (cluster, _),
        blocking.Producer(cluster, settings=ProducerSettings(sync=True)) as producer,
    ):
        assert producer.send("t", b"value").done()


def test_errors_are_those_of_the_asyncio_producer() -> None:
    peer = ProducingPeer(1, logs={})
    with connected(peer) as (cluster, _), blocking.Producer(cluster) as producer:
        with pytest.raises(ProtocolError) as raised:
            producer.send("t", b"value", partition=9)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ProtocolError) as raised:
            producer.send("t", b"v" * 2_000_000)
        assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_many_threads_share_one_producer() -> None:
    peer = ProducingPeer(1, logs={})
    with connected(peer) as (cluster, _), blocking.Producer(cluster) as producer:
        threads = [
            threading.Thread(target=lambda: [producer.send("t", b"v") for _ in range(25)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.metrics.records_acknowledged == 100


def test_a_loop_over_records_may_be_left_and_begun_again_anywhere() -> None:
    with consuming(b"a", b"b", b"c") as consumer:
        assert [record.value for record in islice(consumer, 2)] == [b"a", b"b"]
        assert consumer.position(ZERO) == 2
        assert consumer.lag(ZERO) == 1
        assert [record.value for record in consumer.take()] == [b"c"]
        assert consumer.poll(timeout_ms=0) is None


def test_what_was_not_handed_out_is_read_again_after_a_change() -> None:
    with consuming(b"a", b"b", b"c") as consumer:
        assert next(iter(consumer)).value == b"a"
        consumer.pause([ZERO])
        assert consumer.paused == {ZERO}
        assert consumer.poll(timeout_ms=20) is None
        assert consumer.position(ZERO) == 1
        consumer.resume([ZERO])
        assert next(iter(consumer)).value == b"b"
        consumer.seek(ZERO, 0)
        assert [record.value for record in islice(consumer, 3)] == [b"a", b"b", b"c"]
        consumer.seek_to_beginning()
        assert next(iter(consumer)).offset == 0
        consumer.assign({ONE: 0})
        assert consumer.assignment == {ONE}


def test_errors_of_a_partition_are_raised_to_the_reader() -> None:
    peer = ServingPeer(1, logs={})
    settings = ConsumerSettings(offset_reset=OffsetReset.NONE, fetch_max_wait_ms=10)
    with connected(peer) as (cluster, _), blocking.Consumer(cluster, settings=settings) as consumer:
        peer.log().append(b"a")
        consumer.assign({ZERO: 5})
        with pytest.raises(PartitionError, match="t-0"):
            consumer.poll()


@contextmanager
def interrupted_once(begun: threading.Event) -> Iterator[None]:
    """Ctrl-C for this process, once it waits for the work that has begun then."""

    def send() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_call_leaves_nothing_behind() -> None:
    with consuming(b"a") as consumer:
        assert consumer.poll() is not None
        begun = threading.Event()
        ended = threading.Event()

        async def wait() -> None:
            begun.set()
            try:
                await consumer.behind.take()
            finally:
                ended.set()

        with interrupted_once(begun), pytest.raises(KeyboardInterrupt):
            consumer.thread.call(wait)
        assert ended.is_set()
        assert consumer.poll(timeout_ms=0) is None


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_interrupt_as_the_work_is_handed_over_ends_it(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """Before the loop was told of the work, and right behind that."""
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with LoopThread("interrupted") as thread:
        loop = thread.run(asyncio.get_running_loop)
        hand_over = loop.call_soon_threadsafe

        def interrupted(callback: Callable[[], object]) -> None:
            monkeypatch.undo()
            if has_begun:
                hand_over(callback)
                begun.wait()
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.call(work)
        assert begun.is_set() == ended.is_set() == has_begun
        assert thread.run(lambda: "goes on") == "goes on"


class Drawer:
    """Where records are put aside."""

    def __init__(self) -> None:
        self.parked: list[bytes | None] = []
        self.is_filled = threading.Event()

    async def park(self, parked: ParkedRecord) -> None:
        self.parked.append(parked.record.value)
        self.is_filled.set()

    async def retry(self, handler: Handler) -> None:
        return


def test_records_that_a_handler_fails_on_are_parked_and_the_others_go_on() -> None:
    handled: list[bytes | None] = []

    def handle(record: ConsumerRecord) -> None:
        handled.append(record.value)
        if record.value == b"b":
            raise ValueError("b is bad")

    with consuming(b"a", b"b") as consumer:
        drawer = Drawer()
        with interrupted_once(drawer.is_filled), pytest.raises(KeyboardInterrupt):
            consumer.process(handle, RetryPolicy(attempts_max=1), parking=drawer)
        assert (handled, drawer.parked) == ([b"a", b"b"], [b"b"])


def test_calls_after_the_end_are_refused() -> None:
    peer = ProducingPeer(1, logs={})
    with connected(peer) as (cluster, _):
        producer = blocking.Producer(cluster)
        cluster.close()
        cluster.close()
        with pytest.raises(RuntimeError, match="not running"):
            producer.start()


def test_the_loops_own_thread_cannot_wait_for_it() -> None:
    peer = ProducingPeer(1, logs={})
    with (
        connected(peer) as (cluster, _),
        blocking.Producer(cluster) as producer,
        pytest.raises(RuntimeError, match="its own thread"),
    ):
        cluster.thread.run(producer.flush)


def test_a_call_that_waits_when_the_thread_ends_is_told() -> None:
    with LoopThread("ending") as thread:
        begun, never = threading.Event(), asyncio.Event()
        raised: list[BaseException] = []

        async def wait_for_ever() -> None:
            begun.set()
            await never.wait()

        def call() -> None:
            try:
                thread.call(wait_for_ever)
            except RuntimeError as error:
                raised.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        begun.wait()
        thread.stop()
        caller.join()
        assert [str(error) for error in raised] == ["it was ended meanwhile"]


def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = ProducingPeer(1, logs={})
    with connected(peer) as (cluster, _), blocking.Producer(cluster) as producer:
        own = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: own + 1)
        with pytest.raises(RuntimeError, match="forked"):
            producer.flush()
        cluster.close()
        monkeypatch.undo()
        producer.flush()


def test_options_that_are_wrong_are_told_before_anything_begins() -> None:
    with pytest.raises(ConfigurationError, match="exactly one of them"), blocking.open_producer({}):
        raise AssertionError("nothing is opened")
