"""What daemons tell each other of the limits that they share: a record of each, in a compacted topic of the
destination that the limits are about.

    {"daemon": ID}    {"statements": [{...}], "at_ms"}    see `flow/bandwidth/statements`

Owned by the daemon: one for each such destination, and a task for each. Without the topic every process keeps
to its own part.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from broker.client.backoff import Backoff
from broker.clock import Clock
from broker.errors import BrokerError
from broker.telemetry import logger
from mirrormaker.clusters import open_cluster
from mirrormaker.flow.bandwidth.statements import Statement, decode_statements, encode_statement
from mirrormaker.flow.kept_topic import KeptTopic
from mirrormaker.flow.signal import Signal
from mirrormaker.flow.topic_silence import watch_silence
from mirrormaker.topology.model import ClusterSpec

LIMITS_TOPIC = "__mirrormaker_limits"
CONFIGS = {"segment.bytes": str(4 << 20), "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.1"}
"""It is written to every second, and the last record of each daemon is all that counts."""
TIMEOUT_MS = 10_000
RETRY_BACKOFF = Backoff(initial_ms=500, max_ms=10_000)


class LimitBoard:
    """See the module. `run` it as a task."""

    def __init__(self, spec: ClusterSpec, daemon_id: str, clock: Clock, on_news: Callable[[], None]) -> None:
        """`on_news`: `heard` may be other than it was."""
        self.spec = spec
        self.heard: Sequence[Statement] = ()
        """What all daemons told last; this one, too."""
        self.problem: str | None = None
        """Why it cannot be reached just now."""
        self._key = {"daemon": daemon_id}
        self._clock = clock
        self._on_news = on_news
        self._own: Sequence[Statement] = ()
        self._due = Signal()
        self._log = logger("limits").bind(cluster=spec.name)

    def tell(self, statements: Sequence[Statement]) -> None:
        """Write this soon; what was not written before that is passed over."""
        self._own = statements
        self._due.set()

    async def run(self) -> None:
        """Exchange, until cancelled."""
        failures = 0
        while True:
            try:
                async with (
                    open_cluster(self.spec, client_id="mirrormaker-limits") as cluster,
                    KeptTopic(cluster, LIMITS_TOPIC, configs=CONFIGS, timeout_ms=TIMEOUT_MS) as topic,
                ):
                    await topic.read_to_end()
                    self._take(topic)  # a predecessor's record is about to be written over
                    self._tell(None)
                    failures = 0
                    await self._exchange(topic)
            except* BrokerError as group:
                error = group.exceptions[0]
                self._tell(str(error))
                failures += 1
            await asyncio.sleep(RETRY_BACKOFF.delay_ms(failures, random.random) / 1000)

    async def _exchange(self, topic: KeptTopic) -> None:
        """Raises BrokerError, in a group."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(topic), name="follow limits")
            tasks.create_task(watch_silence(topic, self.spec.name, self._tell), name="watch limits")
            while True:
                await self._due.wait()
                told = [encode_statement(statement) for statement in self._own]
                value: dict[str, Any] = {"statements": told, "at_ms": self._clock.now_ms()}
                await topic.put([(self._key, value)])

    def _tell(self, problem: str | None) -> None:
        """Once, and once that it has passed."""
        if problem is not None and self.problem is None:
            self._log.warning("limits_not_shared", error=problem)
        elif problem is None and self.problem is not None:
            self._log.info("limits_shared")
        self.problem = problem

    async def _follow(self, topic: KeptTopic) -> None:
        while True:
            await topic.changed()
            self._take(topic)

    def _take(self, topic: KeptTopic) -> None:
        told = [value.get("statements") for _, value in topic.entries()]
        self.heard = decode_statements(one for each in told if isinstance(each, list) for one in each)
        self._on_news()
