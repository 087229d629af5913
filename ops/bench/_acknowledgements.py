"""When records were acknowledged: every partition of a topic gets one after the other, by librdkafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from broker.embedded import EmbeddedCluster

INTERVAL_SECONDS = 0.01
"""Between two records of a partition."""
VALUE = bytes(100)
PATIENCE_SECONDS = 120.0


class Acknowledgements:
    """An idempotent producer with acks=all and otherwise its defaults, at work within a `with`."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, partitions: int) -> None:
        self.failures: list[str] = []
        self._topic = topic
        self._times: list[list[float]] = [[] for _ in range(partitions)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer")
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(map(str, cluster.bootstrap)),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def wait_for_all(self, *, after: float) -> None:
        """Return once every partition has got an answer after that time. Raises TimeoutError."""
        deadline = monotonic() + PATIENCE_SECONDS
        while not all(times and times[-1] > after for times in self._times):
            if monotonic() > deadline:
                raise TimeoutError(f"not every partition is written within {PATIENCE_SECONDS} s")
            sleep(INTERVAL_SECONDS)

    def resumed(self, partition: int, since: float) -> float:
        """Seconds from `since` to the end of the longest time without an answer that lasted then or later."""
        return max(_gaps(self._times[partition], since, monotonic()))[1] - since

    def gaps(self, start: float, end: float) -> list[float]:
        """For each partition the longest time between two answers, in seconds, that ended within the span."""
        return [max(_gaps(times, start, end))[0] for times in self._times]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(PATIENCE_SECONDS)

    def _run(self) -> None:
        due = monotonic()
        while not self._stopping.is_set():
            for partition in range(len(self._times)):
                self._producer.produce(self._topic, VALUE, partition=partition, on_delivery=self._answered)
            due += INTERVAL_SECONDS
            while (left := due - monotonic()) > 0:
                self._producer.poll(left)
            self._producer.poll(0)

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self._times[message.partition()].append(monotonic())


def _gaps(times: list[float], start: float, end: float) -> Iterator[tuple[float, float]]:
    """How long each time without an answer was that ended within the span, and when."""
    return ((later - earlier, later) for earlier, later in pairwise(times) if start < later <= end)
