"""What at most once may have lost, noted at the destination beside what else a route leaves out (`skips`), so
that audits explain it as long as the notes are there, whatever delivery the route has by then.

    {"route", "topic", "partition", "offset", "resumed_at", "delivery": "at_most_once"}
    {"reason": "maybe_lost", "problem", "at_ms", "resumed_at", "lost"}

The key is one of its own: at the same offset something else may be noted, and more or less may be lost
another time. Some of what is named may be there.

What a route passes over where its source has forgotten the position is noted here as well; see `passed_over`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError, ErrorCode, ProtocolError
from broker.telemetry import logger
from broker.types import TopicPartition
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.kept_view import Document
from mirrormaker.flow.lane_note import Arrears
from mirrormaker.flow.obstacles import SKIPPED_TOPIC
from mirrormaker.flow.passed_over import Moves, Passing, describe_passed_over
from mirrormaker.flow.skips import TIMEOUT_MS
from mirrormaker.topology.model import Delivery, RouteName

REASON = "maybe_lost"
NOTES_AT_A_TIME = 500

_log = logger("losses")


class Loss(NamedTuple):
    """Source offsets of which some may not have arrived, and are not sent again; the second exclusive."""

    source: TopicPartition
    first: int
    next: int


def losses_of(lacked: Mapping[TopicPartition, Arrears | None]) -> list[Loss]:
    """What is lacking, where anything is."""
    return [Loss(source, each.first, each.next) for source, each in lacked.items() if each is not None]


def describe_loss(route: RouteName, loss: Loss, at_ms: int) -> tuple[Document, Document]:
    """Key and value of the note. Pure."""
    key = {
        "route": route,
        "topic": loss.source.topic,
        "partition": loss.source.partition,
        "offset": loss.first,
        "resumed_at": loss.next,
        "delivery": Delivery.AT_MOST_ONCE.value,
    }
    value = {
        "reason": REASON,
        "problem": f"of the offsets {loss.first} to {loss.next - 1} some may not have arrived",
        "at_ms": at_ms,
        "resumed_at": loss.next,
        "lost": [loss.first, loss.next],
    }
    return key, value


class LossNotes:
    """Of one route."""

    def __init__(self, route: RouteName, destination: Cluster, clock: Clock) -> None:
        self._route = route
        self._destination = destination
        self._clock = clock
        self._pending: list[Loss] = []
        self._keeping: asyncio.Task[None] | None = None

    async def write(self, losses: Iterable[Loss]) -> None:
        """Return when the notes are safe, or the destination refuses them for good. Raises BrokerError."""
        at_ms = self._clock.now_ms()
        await self._put([describe_loss(self._route, loss, at_ms) for loss in losses])

    async def write_forgotten(self, moves: Moves) -> None:
        """The same of what the route passes over, as the source has forgotten where it was."""
        why = Passing.POSITION_FORGOTTEN
        await self._put(describe_passed_over(self._route, moves, why, self._clock.now_ms()))

    async def _put(self, notes: Collection[tuple[Document, Document]]) -> None:
        if not notes:
            return
        try:
            async with KeptTopic(self._destination, SKIPPED_TOPIC, timeout_ms=TIMEOUT_MS) as topic:
                await topic.put(notes)
        except ConfigurationError as error:
            _log.warning("losses_not_noted", route=self._route, error=str(error))
        except ProtocolError as error:
            if error.code.retriable or error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                raise
            _log.warning("losses_not_noted", route=self._route, error=str(error))

    def keep(self, loss: Loss, tasks: asyncio.TaskGroup) -> None:
        """The same, however long it takes, by a task: one for all that are lost meanwhile."""
        self._pending.append(loss)
        if self._keeping is None or self._keeping.done():
            self._keeping = tasks.create_task(self._keep(), name=f"losses of {self._route}")

    async def _keep(self) -> None:
        destination, failures = self._destination, 0
        while losses := self._pending[:NOTES_AT_A_TIME]:
            try:
                await self.write(losses)
            except BrokerError as error:
                failures += 1
                _log.info("losses_not_noted", route=self._route, error=str(error))
                await asyncio.sleep(destination.backoff.delay_ms(failures, destination.random) / 1000)
            else:
                failures = 0
                del self._pending[: len(losses)]
