"""Routes as nobody would write them by hand, and writers that leave in topics whatever a topic may hold.

Everything is drawn from one `Random`: settings of a route and of its topics, producers with and without
transactions, codecs, batch sizes, keys, times and headers. Each record has a header of its own by which it is
known again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster
from tests.daemon.killed_mirrors import address

ID_HEADER = "id"
RECORD_BYTES_MAX = 300_000
MESSAGE_BYTES_MAX = 1_000_000
TIMEOUT_SECONDS = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTopic:
    """One of the source's, and how many partitions its copy has."""

    name: str
    partitions: int
    copies: int

    @property
    def copy(self) -> str:
        return f"jfk.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRoute:
    """What a topology says of a route, and what readers may expect of it."""

    settings: dict[str, Any]
    topics: Sequence[CopiedTopic]

    @property
    def delivery(self) -> str:
        return str(self.settings["delivery"])

    @property
    def is_spread(self) -> bool:
        return "partitions" in self.settings["topics"]

    def takes(self, record_id: str) -> bool:
        """Whether its filter, if it has one, lets the record pass."""
        return "filters" not in self.settings or int(record_id[-1]) % 2 == 0


def draw_route(chance: random.Random) -> RandomRoute:
    """Topics are named `flights-N`."""
    spread = chance.choice([None, None, None, "key", "round_robin"])
    topics = []
    for number in range(chance.choice([1, 2, 3])):
        partitions = chance.choice([1, 2, 5])
        copies = chance.choice([1, 3]) if spread else partitions
        topics.append(CopiedTopic(name=f"flights-{number}", partitions=partitions, copies=copies))
    settings: dict[str, Any] = {
        "topics": {"include": ["flights-.*"], **({"partitions": spread} if spread else {})},
        "delivery": chance.choice(["exactly_once", "exactly_once", "at_least_once", "at_most_once"]),
    }
    wishes: list[tuple[float, Callable[[], dict[str, Any]]]] = [
        (0.3, lambda: {"copy": "deep"}),
        (0.4, lambda: {"compression": chance.choice(CODECS)}),
        (0.3, lambda: {"batch": {"bytes": chance.choice([1024, 20_000, 500_000]), "linger_ms": 20}}),
        (0.25, lambda: {"filters": [{"keep": {"header": {"name": ID_HEADER, "matches": ".*[02468]"}}}]}),
        (0.3, lambda: {"buckets": chance.choice([1, 2, 7])}),
        (0.5, lambda: {"resources": _draw_resources(chance)}),
    ]
    for share, wish in wishes:
        if chance.random() < share:
            settings |= wish()
    workers = settings.get("resources", {}).get("workers", 1)
    settings |= {"buckets": max(settings["buckets"], workers)} if "buckets" in settings else {}
    return RandomRoute(settings=settings, topics=topics)


def _draw_resources(chance: random.Random) -> dict[str, Any]:
    choices = {"workers": 2, "fetch_partition_bytes": chance.choice([1024, 30_000]), "buffer_bytes": 2 << 20}
    return {name: value for name, value in choices.items() if chance.random() < 0.5}


def create_topics(
    route: RandomRoute, source: EmbeddedCluster, destination: EmbeddedCluster, chance: random.Random
) -> None:
    """Those of the source, and copies that the mirror is not to make itself."""
    for topic in route.topics:
        config = {"segment.bytes": str(chance.choice([1_200_000, 3_000_000, 10_000_000]))}
        if chance.random() < 0.2:
            config["compression.type"] = chance.choice(["gzip", "zstd", "uncompressed"])
        _create(source, NewTopic(topic.name, topic.partitions, 1, config=config))
        if route.is_spread or chance.random() < 0.3:
            _create(destination, NewTopic(topic.copy, topic.copies, 1))


def _create(cluster: EmbeddedCluster, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for done in admin.create_topics([topic]).values():
        done.result(TIMEOUT_SECONDS)


@dataclass(slots=True)
class RandomWriter:
    """A producer that writes until it is told to stop, in a thread of its own."""

    cluster: EmbeddedCluster
    topics: Sequence[CopiedTopic]
    name: str
    chance: random.Random
    records_max: int = 4_000
    written: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _writing: Future[None] | None = None

    def start(self) -> None:
        threads = ThreadPoolExecutor(1, thread_name_prefix=self.name)
        self._writing = threads.submit(self._write)
        threads.shutdown(wait=False)

    def finish(self) -> None:
        """Write no more; all that was written is acknowledged then, or aborted."""
        self._stop.set()
        assert self._writing is not None
        self._writing.result(4 * TIMEOUT_SECONDS)

    def _write(self) -> None:
        chance = self.chance
        is_transactional = chance.random() < 0.6
        producer = Producer(
            {
                "bootstrap.servers": address(self.cluster),
                "enable.idempotence": True,
                "compression.codec": chance.choice(CODECS),
                "linger.ms": chance.choice([0, 1, 5, 50, 200]),
                "batch.size": chance.choice([500, 5_000, 100_000, 900_000]),
                "batch.num.messages": chance.choice([1, 3, 50, 10_000]),
                "message.max.bytes": MESSAGE_BYTES_MAX,
                **({"transactional.id": self.name} if is_transactional else {}),
            }
        )
        if is_transactional:
            producer.init_transactions(TIMEOUT_SECONDS)
        while not self._stop.is_set() and self.written < self.records_max:
            if is_transactional:
                producer.begin_transaction()
            for _ in range(chance.choice([1, 2, 10, 100, 400])):
                self._write_one(producer)
            if is_transactional:
                _end_transaction(producer, is_aborted=chance.random() < 0.4)
            producer.poll(0)
            if chance.random() < 0.2:
                self._stop.wait(chance.random() / 2)
        assert producer.flush(TIMEOUT_SECONDS) == 0

    def _write_one(self, producer: Producer) -> None:
        chance, record_id = self.chance, f"{self.name}-{self.written}"
        topic = chance.choice(self.topics)
        size = chance.choice([0, 10, 100, 1_000, 3_000])
        if chance.random() < 0.02:
            size = chance.choice([20_000, RECORD_BYTES_MAX])
        extra = [
            (f"h{number}", chance.choice([None, b"", b"x"])) for number in range(chance.choice([0, 0, 2]))
        ]
        past = chance.choice([1, 1_500_000_000_000])
        while True:
            try:
                producer.produce(
                    topic.name,
                    None if chance.random() < 0.03 else chance.randbytes(size),
                    chance.choice([None, b"", b"k%d" % chance.randrange(50), b"key" * 20]),
                    partition=chance.randrange(topic.partitions),
                    headers=[(ID_HEADER, record_id.encode()), *extra],
                    **({"timestamp": past} if chance.random() < 0.2 else {}),
                )
            except BufferError:
                producer.poll(0.1)
                continue
            break
        self.written += 1


def _end_transaction(producer: Producer, *, is_aborted: bool) -> None:
    """Commit or abort, all of it sent: an abort that overtakes its records is fatal to librdkafka."""
    producer.flush(TIMEOUT_SECONDS)
    try:
        if is_aborted:
            producer.abort_transaction(TIMEOUT_SECONDS)
        else:
            producer.commit_transaction(TIMEOUT_SECONDS)
    except KafkaException as failure:
        error = failure.args[0]
        if error.txn_requires_abort():
            producer.abort_transaction(TIMEOUT_SECONDS)
        elif error.retriable():
            producer.commit_transaction(TIMEOUT_SECONDS)
        else:
            raise


def id_of(message: Message) -> str:
    """By which the record is known at both sides."""
    return dict(message.headers() or [])[ID_HEADER].decode()
