"""A reader without a group, for whom nothing may ever be missing or vanish."""

from __future__ import annotations

from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.chaos.background import Background
from tests.chaos.closing import close
from tests.chaos.load import CLIENT_SETTINGS, PARTITIONS, Placed, number_in


class Watcher(Background):
    """Reads along from the first record to the end of a `with`; it must meet every offset, once, in order.

    A log that ends before what was read from it, or forks, is a failure, not a reason to begin again.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("watcher")
        self.seen: defaultdict[int, list[int]] = defaultdict(list)
        """By partition, the number at every offset."""
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watcher",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                **CLIENT_SETTINGS,
            }
        )

    def has_seen(self, placed: Placed) -> bool:
        """Whether it has read as far as these records go; they are compared at the end."""
        assert not self.failures, self.failures[:3]
        return all(len(self.seen[partition]) >= len(records) for partition, records in placed.items())

    def assert_saw(self, placed: Placed) -> None:
        """It has read exactly these records, and nothing that is not there now."""
        assert not self.failures, self.failures[:3]
        for partition, records in placed.items():
            assert list(enumerate(self.seen[partition])) == records, f"partition {partition} was another"

    def _after(self, *, failed: bool) -> None:
        close(self._consumer)

    def _run(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, number, 0) for number in range(PARTITIONS)])
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                self._meet(message)

    def _meet(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self.failures.append(f"{message.topic()} {message.partition()}: {error.str()}")
            return
        seen = self.seen[message.partition()]
        if message.offset() != len(seen):
            self.failures.append(
                f"partition {message.partition()}: offset {message.offset()} where {len(seen)} is next"
            )
            self._stopping.set()
        seen.append(number_in(message))
