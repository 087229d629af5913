"""One fetch loop's side of its broker: what it asks for, on which connection, and how much at a time.

Where it has many partitions it asks within a fetch session, so that a fetch costs what has records and not
what could have. A stretch that filters left empty would not be told there, and what is read ahead is one
partition: both are asked for in full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from broker.client.cluster import Cluster
from broker.client.connection import Connection
from broker.client.fetch import FetchTerms, build_fetch, read_fetch, version_limit
from broker.client.fetch_session import SESSIONS_FROM, FetchSession
from broker.clock import Clock
from broker.errors import BrokerError
from broker.types import TopicPartition
from broker.wire.features import FETCH_FILTER, FETCH_ORDER
from broker.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from mirrormaker.flow.answer_size import AnswerSize
from mirrormaker.flow.exchange import FetchPlan
from mirrormaker.flow.fetch_pace import FetchPace

FETCH_LANE = "fetch"
FETCH_WAIT_MS = 500
PRESSED_WAIT_MS = 5
"""How long a fetch may wait for data while other partitions of the broker wait for room in the buffer."""
THROTTLED_WAIT_MS = 100
"""The same while others wait for bandwidth."""
SESSION_PARTITIONS_MIN = 8
"""Fewer are asked for in full."""
HEAR_INTERVAL_MS = 1_000
_NONE: Collection[TopicPartition] = frozenset()


class Answered(NamedTuple):
    """An answer to a fetch."""

    parts: Sequence[tuple[TopicPartition, PartitionData]]
    started_ms: int
    elapsed_ms: int
    unchanged_ms: int | None
    """Until when nothing had come in partitions that are told of now, but for `added`; None: not known."""
    added: Collection[TopicPartition]
    heard_of: Collection[TopicPartition]
    """Partitions of which nothing new was to be told, from time to time."""


class Fetcher:
    """See the module. One request at a time, but for what is read ahead."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        node_id: int,
        number: int,
        answer_bytes: int,
        *,
        filter_text: Callable[[Iterable[str]], str],
        read_committed: bool,
    ) -> None:
        """`number`: among the loops of the broker."""
        self.node_id = node_id
        self.answer = AnswerSize(answer_bytes)
        self.sources: list[TopicPartition] = []
        self.is_running = False
        self.served: Collection[TopicPartition] = _NONE
        """Those that its last answer brought something of."""
        self._cluster = cluster
        self._clock = clock
        self._connection_lane = FETCH_LANE if not number else f"{FETCH_LANE}-{number}"
        self._filter_text = filter_text
        self._read_committed = read_committed
        self._session = FetchSession()
        self._pace = FetchPace()
        self._asked_ms: int | None = None
        """When the session was asked last; None: no answer since then."""
        self._heard_ms = 0

    async def ask(self, plan: FetchPlan, *, is_alone: bool = True) -> Answered:
        """Fetch. `is_alone`: no other request of it is under way. Raises BrokerError."""
        metadata = self._cluster.metadata
        connection = await self._cluster.connection(self.node_id, self._connection_lane)
        version = connection.version_of(FetchRequest, at_most=version_limit(plan.positions, metadata))
        terms = self._terms(plan, connection)
        if (
            is_alone
            and len(plan.positions) >= SESSION_PARTITIONS_MIN
            and not plan.is_contended
            and version >= SESSIONS_FROM
            and not terms.record_filter
        ):
            return await self._ask_in_session(plan, terms, connection, version)
        request = build_fetch(plan.positions, terms, metadata, version)
        started_ms = self._clock.monotonic_ms()
        response = await connection.request(request, version)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        return Answered(list(read_fetch(response, request)), started_ms, elapsed_ms, None, _NONE, _NONE)

    async def _ask_in_session(
        self, plan: FetchPlan, terms: FetchTerms, connection: Connection, version: int
    ) -> Answered:
        session, former_ms = self._session, self._asked_ms
        self._asked_ms = None
        started_ms = self._clock.monotonic_ms()
        response: FetchResponse | None = None
        while response is None or not session.answered(response):
            request = session.request(plan.positions, terms, self._cluster.metadata, version)
            try:
                response = await connection.request(request, version)
            except BrokerError:
                session.lost()
                raise
        now_ms = self._clock.monotonic_ms()
        parts = list(read_fetch(response, request, session.names))
        self._asked_ms = started_ms
        heard_of = _NONE
        if now_ms - self._heard_ms >= HEAR_INTERVAL_MS:
            self._heard_ms = now_ms
            heard_of = session.partitions.keys() - {source for source, _ in parts}
        return Answered(parts, started_ms, now_ms - started_ms, former_ms, session.added, heard_of)

    def _terms(self, plan: FetchPlan, connection: Connection) -> FetchTerms:
        """While records keep coming an answer may wait until there are enough to put together; the first
        after a silence goes on at once.
        """
        gathers = bool(plan.linger_ms and plan.gather_bytes)
        wait_ms = _wait_ms(plan)
        topics = {each.topic_partition.topic for each in plan.positions}
        return FetchTerms(
            max_wait_ms=min(wait_ms, plan.linger_ms) if gathers else wait_ms,
            min_bytes=plan.gather_bytes if gathers else 1,
            max_bytes=plan.answer_bytes,
            read_committed=self._read_committed,
            record_filter=self._filter_text(topics) if FETCH_FILTER in connection.supported_features else "",
            in_order=plan.is_contended and FETCH_ORDER in connection.supported_features,
        )

    async def pause(self, answered: Answered, parts: int) -> None:
        """Leave the broker alone for as long as saves it work (see `fetch_pace`), after an answer that had
        room for more, and records of so many partitions.
        """
        now_ms = self._clock.monotonic_ms()
        self._pace.answered(parts, answered.elapsed_ms, now_ms)
        wait_ms = self._pace.wait_ms(answered.started_ms, now_ms)
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

    def serve_last(self, served: set[TopicPartition], *, is_contended: bool) -> None:
        """Those that got something stand back for others next."""
        if 0 < len(served) < len(self.sources):
            stand_back(self.sources, served, by_topic=is_contended)


def stand_back(sources: list[TopicPartition], served: set[TopicPartition], *, by_topic: bool) -> None:
    """Brokers fill an answer in the order asked: put those last that got something; `by_topic`: behind the
    others of their topics, and these behind other topics.
    """
    if not by_topic:
        sources.sort(key=served.__contains__)
        return
    topics = {source.topic for source in served}
    sources.sort(key=lambda source: (source.topic in topics, source in served))


def _wait_ms(plan: FetchPlan) -> int:
    """How long the broker may wait for records."""
    if plan.pressed:
        return PRESSED_WAIT_MS
    return THROTTLED_WAIT_MS if plan.throttled else FETCH_WAIT_MS
