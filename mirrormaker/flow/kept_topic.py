"""A compacted topic that the mirror keeps at a cluster: read to its end, followed, written to.

It is made where it is missing. Readers see what is committed, in the order of the log: of several writers the
last one wins, as read. A topic that is deleted is made again, empty; one that was deleted and made again by
others is read anew: `incarnation` tells. What cannot be read as JSON is told in the log and passed over.

Owned by one task of the event loop, started and ended by `async with`. While the right to read is missing
every call says so; once it has failed for good, as where a password is wrong, every call says why.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.client.fetch import (
    FetchTerms,
    PartitionPosition,
    build_fetch,
    bytes_needed,
    cut_batches,
    read_fetch,
    version_limit,
)
from broker.client.metadata import ClusterMetadata
from broker.client.offsets import LATEST, earliest_offsets, list_offsets
from broker.client.operations import CREATE, DESCRIBE, READ, WRITE
from broker.client.producer import Producer, ProducerSettings
from broker.client.record_cursor import RecordCursor
from broker.client.topic_admin import NewTopic
from broker.errors import (
    AuthenticationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
)
from broker.telemetry import logger
from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from broker.wire.messages.fetch import FetchRequest, PartitionData
from mirrormaker.flow.kept_view import Document, KeptView, TopicView, encode_document
from mirrormaker.flow.topic_making import make_topic
from mirrormaker.missing_rights import UNAUTHORIZED_CODES, missing_right, right_to_write

REPLICAS_MAX = 3
FETCH_WAIT_MS = 2_000
"""What comes is answered at once; while nothing does, so often is asked for it."""
FETCH_BYTES = 1 << 20
DECODED_BYTES_MAX = 64 << 20
RECORDS_AT_ONCE = 1_000
METADATA_AGE_MS = 30_000
"""A topic that was made anew while nothing failed is noticed after so long."""

_NOT_TOLD_CODES = UNAUTHORIZED_CODES | {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

CLOSE_TIMEOUT_MS = 1_000
"""For what is on its way at the end: nobody waits for it any more, or `put` would not have returned."""
BegunAnew = Callable[[str, str, int, str], None]
"""Takes the topic, its cluster, how many entries are thrown away, and why that is so."""

_log = logger("kept_topic")


def _log_begun_anew(topic: str, cluster: str, entries: int, reason: str) -> None:
    _log.warning("kept_topic_begun_anew", topic=topic, cluster=cluster, entries=entries, reason=reason)


class _RightMissingError(ProtocolError):
    """A right to the topic that is missing, with all that are needed."""

    def __init__(self, code: ErrorCode, cluster: str, topic: str, operation: int) -> None:
        lacking = missing_right(code, cluster, topic, operation).message
        super().__init__(
            code, f"{lacking}: it is to be described, read, written, and created where it is missing"
        )


class KeptTopic:
    """See the module. `async with` returns once the topic is there, not yet read."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        timeout_ms: int = 60_000,
        view: TopicView | None = None,
        on_begun_anew: BegunAnew | None = None,
    ) -> None:
        """The cluster comes started. `partitions` and further `configs`: of a topic that is missing.
        `timeout_ms` bounds making it, reading to its end, and writing. `view`: takes the records in, instead
        of `get` and `entries`. `on_begun_anew` is told of what else goes to the log.
        """
        self.name = name
        self.incarnation = 0
        """How often what was read has been thrown away, since the topic is not the one it was."""
        self.reads = 0
        """How often it has been asked for more, and answered."""
        self.failure: str | None = None
        """Why it was not the last time, as far as that is known."""
        self._cluster = cluster
        self._partitions = partitions
        self._timeout_ms = timeout_ms
        self._configs = {"cleanup.policy": "compact", **(configs or {})}
        self._documents = KeptView()
        self._view: TopicView = self._documents if view is None else view
        self._on_begun_anew = on_begun_anew or _log_begun_anew
        self._positions: dict[TopicPartition, int] = {}
        self._topic_id: TopicId = NO_TOPIC_ID
        self._fetch_bytes = FETCH_BYTES
        self._lane = cluster.new_lane(f"kept {name}")
        self._producer = self._make_producer()
        self._follower: asyncio.Task[None] | None = None
        self._refusal: BrokerError | None = None
        """Why the cluster does not let it be read, as far as it was asked last."""
        self._moved = asyncio.Event()
        """Set, and replaced, whenever something was read."""

    async def __aenter__(self) -> Self:
        """Raises ProtocolError, naming the topic and the rights it needs; ConfigurationError for a topic
        that is not compacted; ConnectionFailedError, RequestTimedOutError.
        """
        retries = self._cluster.retries(self._timeout_ms)
        while True:
            try:
                await self._make_sure()
                break
            except BrokerError as error:
                await retries.pause(error)
        await self._producer.start()
        self._follower = asyncio.create_task(self._follow(), name=f"follow {self.name}")
        self._follower.add_done_callback(lambda _: self._tell_moved())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._follower is not None
        self._follower.cancel()
        await asyncio.wait([self._follower])
        await self._producer.close(timeout_ms=CLOSE_TIMEOUT_MS)
        await self._cluster.release_lane(self._lane)

    # ---- reading

    def get(self, key: Document) -> Document | None:
        """The value as far as read; None where there is none. Raises what following failed with."""
        self._check()
        return self._documents.get(key)

    def entries(self) -> Iterator[tuple[Document, Document]]:
        """All keys with their values, as far as read. Raises what following failed with."""
        self._check()
        return self._documents.entries()

    async def changed(self) -> None:
        """Return when something more has been read. Raises what following failed with."""
        self._check()
        await self._moved.wait()
        self._check()

    async def read_to_end(self, *, awaits_transactions: bool = True) -> None:
        """Return when all that was acknowledged before the call has been read; without `awaits_transactions`
        what lies in front of all transactions that are open.

        Raises RequestTimedOutError, as while a transaction is open that is awaited, and what following failed
        with.
        """
        behind: dict[TopicPartition, int] = {}
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while True:
                    self._check()
                    incarnation = self.incarnation
                    behind = await self._ends(read_committed=not awaits_transactions)
                    while incarnation == self.incarnation and (behind := self._short_of(behind)):
                        await self.changed()
                    if incarnation == self.incarnation:
                        return
        except TimeoutError:
            raise RequestTimedOutError(
                f"topic {self.name} was not read to its end within {self._timeout_ms} ms: "
                + self._why_short(behind)
            ) from None

    @staticmethod
    def _why_short(behind: Mapping[TopicPartition, int]) -> str:
        if not behind:
            return "its cluster does not say where it ends"
        ends = ", ".join(f"{each} is to be read up to {end}" for each, end in behind.items())
        return f"{ends}; a transaction that is open holds back what follows it"

    async def _ends(self, *, read_committed: bool) -> dict[TopicPartition, int]:
        """Ends of all partitions, for such readers."""
        retries = self._cluster.retries(self._timeout_ms)
        while True:
            try:
                await self._make_sure()
                with self._needing(DESCRIBE):
                    wanted = dict.fromkeys(self._all_partitions(), LATEST)
                    found = await list_offsets(self._cluster, wanted, read_committed=read_committed)
                    return {partition: at.offset for partition, at in found.items()}
            except BrokerError as error:
                await retries.pause(error)

    def _short_of(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: end for each, end in ends.items() if self._positions.get(each, -1) < end}

    def check_follower(self) -> None:
        """Raise what following failed with for good, if it has: nothing more will be read."""
        follower = self._follower
        assert follower is not None, "it was not started"
        if follower.done() and not follower.cancelled() and (error := follower.exception()) is not None:
            raise error

    def _check(self) -> None:
        self.check_follower()
        if self._refusal is not None:
            raise self._refusal

    # ---- writing

    async def put(self, entries: Iterable[tuple[Document, Document | None]]) -> None:
        """Write values, None to delete; returns when all in-sync replicas have them. They are seen by `get`
        once they have been read (see `read_to_end`).

        Raises ProtocolError, naming the topic and the rights it needs, and RequestTimedOutError: then some
        may have been written.
        """
        self._check()
        producer = self._producer
        try:
            with self._needing(WRITE):
                deliveries = [
                    await producer.send(
                        self.name, None if value is None else encode_document(value), encode_document(key)
                    )
                    for key, value in entries
                ]
                for delivery in deliveries:
                    await delivery
        except ProtocolError as error:
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                await self._replace(producer)
            raise

    def _make_producer(self) -> Producer:
        settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=self._timeout_ms)
        return Producer(self._cluster, settings=settings)

    async def _replace(self, failed: Producer) -> None:
        """One that was refused a producer id writes nothing any more, also once the right to it is there."""
        if failed is self._producer:
            self._producer = self._make_producer()
            await self._producer.start()
            await failed.close(timeout_ms=CLOSE_TIMEOUT_MS)

    # ---- the topic itself

    async def _make_sure(self) -> None:
        """Make the topic where it is missing, and begin anew where it is not the one it was. One attempt."""
        with self._needing(DESCRIBE):
            metadata = await self._cluster.refresh([self.name])
            if self._problem(metadata) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self._create(min(REPLICAS_MAX, len(metadata.nodes)))
                metadata = await self._cluster.refresh([self.name])
            if code := self._problem(metadata):
                raise ProtocolError(code, f"topic {self.name}: {code.meaning}")
        known = metadata.topics[self.name]
        if known.topic_id != self._topic_id or known.topic_id == NO_TOPIC_ID:
            await self._check_compaction()
        if self._topic_id not in (NO_TOPIC_ID, known.topic_id):
            self._begin_anew("its id is another")
        self._topic_id = known.topic_id

    def _problem(self, metadata: ClusterMetadata) -> ErrorCode:
        known = metadata.topics.get(self.name)
        return known.error if known is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _create(self, replicas: int) -> None:
        topic = NewTopic(
            name=self.name,
            partitions=self._partitions,
            replication_factor=replicas,
            configs=self._configs,
        )
        with self._needing(CREATE):
            await make_topic(self._cluster, topic, essential=["cleanup.policy"])

    async def _check_compaction(self) -> None:
        """Retention would delete what is still in use. Clusters that do not tell are trusted."""
        try:
            configs = await Admin(self._cluster).describe_topic_configs(self.name, ["cleanup.policy"])
        except ProtocolError as error:
            if error.code not in _NOT_TOLD_CODES:
                raise
            return
        policy = configs["cleanup.policy"].value if "cleanup.policy" in configs else None
        if policy is not None and policy.strip() != "compact":
            raise ConfigurationError(
                [f"topic {self.name} has cleanup.policy={policy}: it would lose what is in use; set compact"]
            )

    def _begin_anew(self, reason: str) -> None:
        self._on_begun_anew(self.name, self._cluster.name, len(self._view), reason)
        self._view.clear()
        self._positions.clear()
        self.incarnation += 1
        self._tell_moved()

    @contextmanager
    def _needing(self, operation: int) -> Iterator[None]:
        """What is done within takes that right to the topic; to write it, also that to see it."""
        try:
            yield
        except _RightMissingError:
            raise
        except ProtocolError as error:
            if error.code not in UNAUTHORIZED_CODES:
                raise
            known = self._cluster.topics.get(self.name)
            needed = right_to_write(known) if operation == WRITE else operation
            raise _RightMissingError(error.code, self._cluster.name, self.name, needed) from error

    # ---- following

    async def _follow(self) -> None:
        """Read what comes, until cancelled. Raises what waiting does not help against."""
        failures, is_doubted = 0, False
        looked_at_ms = self._now_ms()
        while True:
            try:
                if is_doubted or self._now_ms() - looked_at_ms > METADATA_AGE_MS:
                    await self._make_sure()
                    looked_at_ms = self._now_ms()
                await self._read_on()
                failures, is_doubted, self._refusal, self.failure = 0, False, None, None
                self.reads += 1
            except (AuthenticationError, ConfigurationError):
                raise
            except BrokerError as error:
                if isinstance(error, ProtocolError) and error.code in UNAUTHORIZED_CODES:
                    self._refusal = error
                    self._tell_moved()
                failures, is_doubted = failures + 1, True
                if str(error) != self.failure:
                    self.failure = str(error)
                    _log.info("kept_topic_not_read", topic=self.name, failures=failures, error=self.failure)
                await asyncio.sleep(self._cluster.backoff.delay_ms(failures, self._cluster.random) / 1000)

    @staticmethod
    def _now_ms() -> float:
        return asyncio.get_running_loop().time() * 1000

    def _all_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in self._cluster.partitions(self.name)]

    async def _read_on(self) -> None:
        """One fetch from every leader. Raises BrokerError."""
        partitions = self._all_partitions()
        if fresh := [each for each in partitions if each not in self._positions]:
            incarnation = self.incarnation
            with self._needing(DESCRIBE):
                starts = await earliest_offsets(self._cluster, fresh)
            if incarnation != self.incarnation:
                return
            self._positions.update(starts)
        by_leader: dict[int, list[PartitionPosition]] = defaultdict(list)
        for each in partitions:
            leader = self._cluster.leader(each)
            if leader is None:
                raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{each} has no leader")
            by_leader[leader].append(
                PartitionPosition(
                    topic_partition=each, offset=self._positions[each], max_bytes=self._fetch_bytes
                )
            )
        if not by_leader:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self.name}")
        fetches = [self._fetch(leader, positions) for leader, positions in by_leader.items()]
        for outcome in await asyncio.gather(*fetches, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _fetch(self, leader: int, positions: list[PartitionPosition]) -> None:
        terms = FetchTerms(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes * len(positions),
            read_committed=True,
        )
        metadata = self._cluster.metadata
        request = build_fetch(positions, terms, metadata)
        connection = await self._cluster.connection(leader, self._lane)
        version = connection.version_of(FetchRequest, at_most=version_limit(positions, metadata))
        response = await connection.request(request, version)
        asked = {position.topic_partition: position for position in positions}
        for each, data in read_fetch(response, request):
            if each in asked and self._positions.get(each) == asked[each].offset:
                self._take(asked[each], data)

    def _take(self, position: PartitionPosition, data: PartitionData) -> None:
        code = ErrorCode.of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew(f"offset {position.offset} of {position.topic_partition} is out of range")
            return
        if code:
            with self._needing(READ):
                raise ProtocolError(code, f"fetch of {position.topic_partition}")
        fetched = cut_batches(position, data)
        if fetched is None:
            self._fetch_bytes = bytes_needed(data, self._fetch_bytes)
            return
        cursor = RecordCursor(fetched, committed_only=True, decoded_bytes_max=DECODED_BYTES_MAX)
        while records := cursor.take(RECORDS_AT_ONCE):
            for record in records:
                try:
                    self._view.apply(record.key, record.value)
                except ValueError as error:
                    _log.warning(
                        "kept_record_not_read",
                        partition=str(position.topic_partition),
                        offset=record.offset,
                        error=str(error),
                    )
        self._positions[position.topic_partition] = cursor.position
        self._tell_moved()

    def _tell_moved(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
