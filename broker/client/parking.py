"""Records that a handler cannot process: tried again a bounded number of times, then put aside, so that those
behind them are processed.

`process` keeps the order of a partition while it tries again. A record that is put aside loses its place: it
is in a dead-letter topic, or in a spool on this machine (`spool`), from which it is tried again beside the
others. Positions are committed when the reader comes back for more, so a record is either processed or safely
put aside before its offset is committed; after a crash some are processed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import Protocol

from broker.client.backoff import Backoff, Random, system_random
from broker.client.consumer import Consumer
from broker.client.dead_letter_headers import (
    ATTEMPTS_HEADER,
    ERROR_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from broker.client.producer import Producer
from broker.client.record_cursor import ConsumerRecord
from broker.clock import Clock, SystemClock
from broker.records.record import Header
from broker.telemetry import logger

Handler = Callable[[ConsumerRecord], Awaitable[None] | None]
"""Processes a record, or raises."""

ERROR_CHARACTERS_MAX = 1_000

_log = logger("parking")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is tried, and what counts as its failure."""

    attempts_max: int = 5
    """The first one included."""
    backoff: Backoff = field(default_factory=partial(Backoff, initial_ms=100, max_ms=10_000))
    """Between attempts."""
    failures: tuple[type[Exception], ...] = (Exception,)
    """Whatever else a handler raises ends `process`."""
    hopeless: tuple[type[Exception], ...] = ()
    """Those of the failures that no further attempt mends: the record is put aside at once."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ValueError(f"attempts_max is {self.attempts_max}, not at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRecord:
    """A record that was given up for now, and why."""

    record: ConsumerRecord
    attempts: int
    error: str
    """Class and message of the last failure, at most `ERROR_CHARACTERS_MAX`."""
    parked_at_ms: int


class Parking(Protocol):
    """Where records are put aside."""

    async def park(self, parked: ParkedRecord) -> None:
        """Return when the record is safe. Raises BrokerError when it cannot be."""
        ...

    async def retry(self, handler: Handler) -> None:
        """What is done with parked records beside consumption, for as long as that lasts; or return."""
        ...


class DeadLetterTopic:
    """Parks in a topic: the record as it was, with headers that tell whence it comes and what was wrong."""

    def __init__(self, producer: Producer, topic: str = "{topic}.dead-letters") -> None:
        """`{topic}` in the name stands for the topic that the record comes from; the topic must exist, or be
        made by the cluster.
        """
        self._producer = producer
        self._topic = topic

    async def park(self, parked: ParkedRecord) -> None:
        record = parked.record
        delivery = await self._producer.send(
            self._topic.format(topic=record.topic),
            record.value,
            record.key,
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
            headers=[*record.headers, *parked_headers(parked)],
        )
        await delivery

    async def retry(self, handler: Handler) -> None:
        """Nothing: whoever reads the topic decides."""


def parked_headers(parked: ParkedRecord) -> list[Header]:
    """The headers of a dead letter, as text."""
    record = parked.record
    told: dict[str, object] = {
        TOPIC_HEADER: record.topic,
        PARTITION_HEADER: record.partition,
        OFFSET_HEADER: record.offset,
        TIMESTAMP_HEADER: record.timestamp,
        ERROR_HEADER: parked.error,
        ATTEMPTS_HEADER: parked.attempts,
    }
    return [(name, str(value).encode(errors="replace")) for name, value in told.items()]


async def process(
    consumer: Consumer,
    handler: Handler,
    policy: RetryPolicy | None = None,
    *,
    parking: Parking,
    random: Random = system_random,
    clock: Clock | None = None,
) -> None:
    """Hand every record to the handler, until cancelled.

    Raises what the consumer raises, BrokerError when a record cannot be parked, and failures of the handler
    that the policy does not name; the record is not committed then.
    """
    work = _Processing(consumer, handler, policy or RetryPolicy(), parking, random, clock or SystemClock())
    retrying = asyncio.create_task(parking.retry(handler), name="parked records")
    consuming = asyncio.create_task(work.run(), name="process")
    try:
        await asyncio.wait([consuming, retrying], return_when=asyncio.FIRST_EXCEPTION)
        for task in (consuming, retrying):
            if task.done():
                task.result()
    finally:
        for task in (consuming, retrying):
            task.cancel()
        await asyncio.wait([consuming, retrying])


async def handle(handler: Handler, record: ConsumerRecord) -> None:
    """Call a handler of either kind."""
    outcome = handler(record)
    if isawaitable(outcome):
        await outcome


def describe(error: Exception) -> str:
    """What a parked record tells of its failure."""
    return f"{type(error).__qualname__}: {error}"[:ERROR_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class _Processing:
    consumer: Consumer
    handler: Handler
    policy: RetryPolicy
    parking: Parking
    random: Random
    clock: Clock

    async def run(self) -> None:
        while True:
            for record in await self.consumer.take():
                await self._process(record)
                self.consumer.stay()

    async def _process(self, record: ConsumerRecord) -> None:
        policy = self.policy
        for attempt in range(1, policy.attempts_max + 1):
            try:
                await handle(self.handler, record)
                return
            except policy.failures as error:
                if attempt < policy.attempts_max and not isinstance(error, policy.hopeless):
                    await asyncio.sleep(policy.backoff.delay_ms(attempt, self.random) / 1000)
                    continue
                failure = describe(error)
            await self._park(record, attempt, failure)
            return

    async def _park(self, record: ConsumerRecord, attempts: int, failure: str) -> None:
        _log.warning(
            "record_parked",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            attempts=attempts,
            error=failure,
        )
        now_ms = self.clock.now_ms()
        parked = ParkedRecord(record=record, attempts=attempts, error=failure, parked_at_ms=now_ms)
        await self.parking.park(parked)
