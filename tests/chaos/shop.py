"""Somebody who writes to and reads from the side of a failover group that is at work, and moves with it."""

from __future__ import annotations

import threading
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from tests.chaos.closing import close
from tests.client.reading_members import Brokers
from tests.daemon.killed_mirrors import PARTITIONS, TOPIC, address

GROUP = "readers"
PATIENCE_SECONDS = 10.0
SEND_TIMEOUT_MS = 4_000
"""After so long a record is given up, and may be there or not."""
Place = tuple[int, int]
"""Partition and offset."""


class Ledger:
    """What became of numbers that were written: each at one side, once."""

    def __init__(self) -> None:
        self.next = 0
        self.acknowledged: dict[int, Place] = {}
        self.in_doubt: set[int] = set()
        self.refused: set[int] = set()
        """By a fence: they are not there, and are written again at the other side."""


class Writer:
    """Writes at one side until the end of a `with`, or until it is refused."""

    def __init__(self, cluster: Brokers, ledger: Ledger) -> None:
        self._ledger = ledger
        self._producer = Producer(
            {
                "bootstrap.servers": address(cluster),
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": SEND_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._producer.flush(4 * SEND_TIMEOUT_MS / 1000)

    def _write(self) -> None:
        again = sorted(self._ledger.refused)
        self._ledger.refused.clear()
        for number in again:
            self._send(number)
        while not (self._done.wait(0.01) or self._ledger.refused):
            for _ in range(10):
                self._send(self._ledger.next)
                self._ledger.next += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            ledger.in_doubt.discard(number)
            if error is None:
                ledger.acknowledged[number] = (message.partition() or 0, message.offset() or 0)
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                ledger.refused.add(number)
            else:
                ledger.in_doubt.add(number)

        ledger = self._ledger
        ledger.in_doubt.add(number)
        value = b"%d" % number + b" " * 100  # none is so small that a fence lets it pass
        self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=told)


class Reader:
    """A member of the group at one side until the end of a `with`; commits behind what it had."""

    def __init__(self, cluster: Brokers, had: Counter[int]) -> None:
        self._had = had
        self._consumer = Consumer(
            {
                "bootstrap.servers": address(cluster),
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)

    def __enter__(self) -> Reader:
        self._consumer.subscribe([TOPIC])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(PATIENCE_SECONDS)  # a commit may wait for its cluster to come back

    def _read(self) -> None:
        while not self._done.is_set():
            messages = [each for each in self._consumer.consume(200, 0.1) if each.error() is None]
            self._had.update(int(each.value() or b"") for each in messages)
            if messages:
                try:
                    self._consumer.commit(asynchronous=False)
                except KafkaException:
                    continue  # it is read again
        close(self._consumer)
