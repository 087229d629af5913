"""Fetch: whole batches as they are stored, at once when there are enough, else when they come or the wait is
over.

Bytes are handed out partition by partition until `max_bytes` is used up; the first partition that has
anything gets at least one batch (KIP-74). Partitions come in the order of their fetch session, or as the
client ordered them; when a fetch without session was cut short by its limit, the next one of the same
connection begins with the partitions that got nothing, unless it says that its order counts. What a session
leaves out of the answer is decided in `fetch_sessions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, cast

from broker.errors import ErrorCode, ProtocolError
from broker.records.record_filter import RecordFilter
from broker.replication.replica import Replica
from broker.replication.waits import wait_for_bytes
from broker.server.access import is_allowed, topic_named
from broker.server.answer_stream import STRETCH_SIZE
from broker.server.cold_reads import read_once_warm
from broker.server.conversions import ANSWER_MAX
from broker.server.fetch_refusals import UNKNOWN, FetchRefusals, failed
from broker.server.fetch_sessions import IDS_FROM, Asker, FetchedPartition, FetchTurn
from broker.server.following_node import FollowingNode
from broker.server.old_formats import (
    CONVERTED_TO,
    PASSED_OVER_BYTES,
    STEPS_MAX,
    Converted,
    StoredAnswer,
    convert,
)
from broker.server.partition_reads import PartitionReader
from broker.server.read_choice import ReadChoice
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.storage.file_range import FileRange
from broker.storage.page_cache import PROBE_DISTANCE, ColdReadError, resident_only
from broker.types import TopicId
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_SESSIONS_FROM = 7
_ENDPOINTS_FROM = 16
RANGES_MAX = 500
"""Partitions of one answer that get records: as many files stay open until the client took them."""
_WARMINGS_MAX = 8
"""Rounds of bringing into memory what a lookup needs: index, where records begin, where they end."""
_NO_REPLICAS: Final[Mapping[int, Replica]] = {}


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answer with what is there, or wait for `min_bytes` up to `max_wait_ms`.

    Raises ProtocolError for a session that is not the client's, or at another epoch.
    """
    fetch = _Fetch(services, context, request)
    size = fetch.read()
    if fetch.is_enough(size) and fetch.version > CONVERTED_TO and fetch.wanted is None:
        return fetch.response()
    return fetch.response_later(size)


def refuse(request: FetchRequest, error: ProtocolError, version: int) -> FetchResponse:
    """An error of the whole request; before sessions existed, one for each of its partitions."""
    if version >= _SESSIONS_FROM:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[failed(partition, error.code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


class _Fetch:
    """One fetch under way. `answers` are those to the turn's partitions, filled in again if the fetch waited;
    None where a session has nothing new to tell.
    """

    __slots__ = (
        "answers",
        "bytes_max",
        "cold",
        "context",
        "ends",
        "first",
        "follower",
        "is_urgent",
        "readable",
        "reader",
        "refusals",
        "replicas",
        "request",
        "services",
        "turn",
        "version",
        "wanted",
    )

    def __init__(self, services: Services, context: RequestContext, request: FetchRequest) -> None:
        self.services = services
        self.context = context
        self.request = request
        self.version = context.api_version
        self.refusals = FetchRefusals(services, context)
        self.wanted = services.fetch_filters.of(request)
        self.follower = FollowingNode.of(
            request, services.isr_changes, services.replication_quotas.leader, services.clock.monotonic_ms()
        )
        asker = Asker(
            context.session.principal,
            is_by_id=self.version >= IDS_FROM,
            is_privileged=self.follower is not None,
        )
        self.turn: FetchTurn = services.fetch_sessions.begin(
            request, asker, name_of=self._name_of, now_ms=services.clock.monotonic_ms()
        )
        self.reader = PartitionReader(
            request,
            self.version,
            self.follower,
            ReadChoice.of(services, context, request),
            has_session=self.turn.session is not None,
        )
        self.answers: list[PartitionData | None] = [None] * len(self.turn.partitions)
        self.bytes_max = min(request.max_bytes, services.limits.fetch_size_max)
        if self.version <= CONVERTED_TO or self.wanted is not None:
            self.bytes_max = min(self.bytes_max, ANSWER_MAX)
        self.first = 0
        """The partition that is read first; a session has its own order, and so have clients that say so."""
        if self.turn.session is None and self.answers and not request.in_order:
            self.first = context.session.fetch_turn % len(self.answers)
        self.replicas: list[Replica] = []
        """Those that were found, for waiting."""
        self.readable: dict[str, bool] = {}
        """By topic, whether the client may read it."""
        self.cold: list[tuple[ColdReadError, int]] = []
        """What must be read from the disk before there is an answer, and about how much is to be sent from
        there on.
        """
        self.ends = 0
        """What `_ends` was when the answers were filled in."""
        self.is_urgent = False
        """Whether there is something that must not wait for more bytes: an error, another history, or an
        answer that has room for no more.
        """

    def response(self) -> FetchResponse:
        """What the client is to get. Raises ProtocolError when its session went on meanwhile."""
        throttle = self.context.throttle
        if throttle is not None and not throttle.admits_fetch(self._size()):
            self.answers = [None] * len(self.answers)  # and what the session knows stays as it was
        if self.follower is not None:
            self.follower.sent()
        now_ms = self.services.clock.monotonic_ms()
        session_id, told = self.services.fetch_sessions.finish(self.turn, self.answers, now_ms=now_ms)
        topics: list[FetchableTopicResponse] = []
        for partition, answer in told:
            if not topics or topics[-1].topic_id != partition.topic_id or topics[-1].topic != partition.topic:
                topics.append(FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id))
            topics[-1].partitions.append(answer)
        response = FetchResponse(session_id=session_id, responses=topics)
        if self.version >= _ENDPOINTS_FROM and self.is_urgent:
            response.node_endpoints = self.refusals.endpoints(answer for _, answer in told)
        return response

    def _size(self) -> int:
        return sum(len(answer.records or b"") for answer in self.answers if answer is not None)

    async def response_later(self, size: int) -> FetchResponse:
        """As `response`, when `min_bytes` are there, or after `max_wait_ms`."""
        size = await self._read_from_disk(size)
        has_waited = not self.is_enough(size)
        if has_waited:
            await self._wait(size)
        if self.version <= CONVERTED_TO:
            await self._convert()
            if not has_waited and self._is_void():  # markers only: a client would ask again at once
                await self._wait(0)
                await self._convert()
        if self.wanted is not None:
            await self._filter(self.wanted)
        return self.response()

    async def _wait(self, size: int) -> None:
        """Read again when more than the `size` bytes that there are came, or the time is up."""
        request = self.request
        while self._ends() != self.ends:  # something came before there was a wait to be told of it
            size = await self._read_from_disk(self.read())
            if self.is_enough(size):
                return
        grown = await wait_for_bytes(
            self.replicas,
            request.min_bytes - size,
            request.max_wait_ms,
            isolation=self.reader.isolation,
            until_commit=self._is_prompt,
        )
        await self._read_from_disk(self.read(grown=None if size else grown))

    def _ends(self) -> int:
        """Differs once there is more to read in any of the partitions."""
        machines = [replica.machine for replica in self.replicas]
        return sum([machine.log_end_offset + machine.high_watermark for machine in machines])

    @property
    def _is_prompt(self) -> bool:
        """Whether a follower hears at once how far records are committed, as consumers read from it. Only
        within a session, which knows what it has heard already, or as its beginning: then it knows nothing.
        """
        return (
            self.follower is not None
            and self.services.read_selector is not None
            and (self.turn.session is not None or self._begins_session)
        )

    @property
    def _begins_session(self) -> bool:
        return self.request.session_epoch == 0 and self.services.fetch_sessions.keeps_any

    @property
    def _is_throttled(self) -> bool:
        """Whether a quota keeps something back that a follower waits for, however much of it there is."""
        return self.follower is not None and self.follower.withheld is not None

    def _is_void(self) -> bool:
        """Whether there is nothing to tell but should be."""
        answers = [answer for answer in self.answers if answer is not None]
        return not (self.is_enough(0) or any(answer.records or answer.error_code for answer in answers))

    def is_enough(self, size: int) -> bool:
        """Whether there is no reason to wait for more than `size` bytes."""
        request = self.request
        return (
            size >= request.min_bytes
            or request.max_wait_ms <= 0
            or self.is_urgent
            or not (self.replicas or self._is_throttled)
        ) and not self.cold

    def read(self, *, may_wait: bool = False, grown: Collection[object] | None = None) -> int:
        """Fill in the answers and return the bytes they hold; where there is more than a partition's limit
        lets through, which batches seldom fill to the byte, as many as that. Unless it may wait for the disk,
        what has to be read from there first is noted in `cold`. Where nothing else happened since the last
        time, `grown` are the replicas that have more to read.
        """
        self.replicas.clear()
        self.cold.clear()
        self.is_urgent = False
        if self.follower is not None:
            self.follower.begin_reading()
        if may_wait:
            return self._read_all(grown)
        with resident_only:
            return self._read_all(grown)

    async def _read_from_disk(self, size: int) -> int:
        """Have in memory what `read` found cold, and read again; returns as `read` does."""
        for _ in range(_WARMINGS_MAX):
            if not self.cold:
                return size
            threads = self.services.disk_threads
            await asyncio.get_running_loop().run_in_executor(threads, _warm, list(self.cold))
            size = self.read()
        return self.read(may_wait=True) if self.cold else size

    async def _convert(self) -> None:
        """Make message sets of the batches, for a client that knows nothing else."""
        session, conversions = self.context.session, self.services.conversions
        found = self._stored()
        if not found:
            return
        if await conversions.take_room(session):
            await self._read_from_disk(self.read())  # the files may have gone meanwhile
            found = self._stored()
        without_any, left_out_from = await self._converted(found, self.bytes_max)
        if left_out_from is not None:
            session.fetch_turn = left_out_from
        for stored in without_any:
            further = await self._behind(stored)
            for _ in range(STEPS_MAX):
                if further is None:
                    break
                if not (await self._converted([further], self.bytes_max - self._size())).without_any:
                    break
                further = await self._behind(further)
        conversions.settle(session, self._size())

    async def _filter(self, wanted: RecordFilter) -> None:
        """Leave out what the client does not want."""
        session, services = self.context.session, self.services
        if not self._stored():
            return
        if await services.conversions.take_room(session):
            await self._read_from_disk(self.read())  # the files may have gone meanwhile
        await services.fetch_filters.apply(
            self._stored(),
            wanted,
            services.conversions.slots,
            batch_size_max=services.limits.batch_size_max,
        )
        services.conversions.settle(session, self._size())

    def _stored(self) -> list[StoredAnswer]:
        """The answers with records that are to be looked into, in the order in which they were read."""
        found: list[StoredAnswer] = []
        count = len(self.answers)
        for place in chain(range(self.first, count), range(self.first)):
            partition, answer = self.turn.partitions[place], self.answers[place]
            records = None if answer is None else cast(object, answer.records)
            if answer is not None and isinstance(records, FileRange):
                if (
                    self.version > CONVERTED_TO
                    or self.services.topic_configs.of(partition.topic).message_downconversion_enable
                ):
                    size_max = partition.wanted.partition_max_bytes
                    found.append(StoredAnswer(place, partition.topic, answer, records, size_max))
                else:
                    answer.records, answer.error_code = b"", ErrorCode.UNSUPPORTED_VERSION
        return found

    async def _converted(self, answers: Sequence[StoredAnswer], bytes_max: int) -> Converted:
        batch_size_max = self.services.limits.batch_size_max
        slots = self.services.conversions.slots
        return await convert(answers, self.version, slots, bytes_max=bytes_max, batch_size_max=batch_size_max)

    async def _behind(self, stored: StoredAnswer) -> StoredAnswer | None:
        """What comes next in a log whose stored records held nothing for the client, if there is more."""
        replica = self.services.replicas.get(stored.topic, stored.answer.partition_index)
        if replica is None:
            return None
        read = partial(
            replica.read,
            stored.records.next_offset,
            max_bytes=min(max(stored.size_max, PASSED_OVER_BYTES), ANSWER_MAX),
            up_to=stored.answer.high_watermark,
            min_one_batch=True,
        )
        try:
            records = await read_once_warm(read, self.services.disk_threads)
        except ProtocolError:
            return None  # it was cut, or is led elsewhere: the next request is told
        return None if records is None else stored._replace(records=records)

    def _read_all(self, grown: Collection[object] | None) -> int:
        partitions, answers, reader = self.turn.partitions, self.answers, self.reader
        follower = self.follower
        session, hosted = self.context.session, self.services.replicas.hosted
        left = self.bytes_max
        size, ranges, is_full, count = 0, 0, False, len(partitions)
        topic, replicas = "", _NO_REPLICAS
        for index in chain(range(self.first, count), range(self.first)):
            found = partitions[index]
            if found.topic != topic:
                topic = found.topic
                replicas = hosted(topic) if self._may_read(topic) else _NO_REPLICAS
            replica = replicas.get(found.wanted.partition) or self._find(index, found)
            if replica is None or (grown is not None and replica not in grown):
                continue
            self.replicas.append(replica)
            if found.noted is not None and reader.is_quiet(found, replica):
                answers[index] = None
                continue
            try:
                answer, is_cut = reader.read(found, replica, left, is_first=not ranges)
            except ColdReadError as cold:
                self.cold.append((cold, min(left, found.wanted.partition_max_bytes)))
                continue
            except ProtocolError as error:
                # What this replica does not have yet may come while the client waits.
                self.is_urgent = self.is_urgent or error.code is not ErrorCode.OFFSET_NOT_AVAILABLE
                answers[index] = self.refusals.refused(found, replica, error, to=follower)
                continue
            answers[index] = answer
            if follower is not None and follower.withheld is replica:
                self.replicas.pop()
            read = 0
            reader.note(found, replica, answer)
            if answer is not None:
                self.is_urgent = (
                    self.is_urgent
                    or self._is_prompt
                    or answer.diverging_epoch.epoch >= 0
                    or answer.preferred_read_replica >= 0
                )
                read = len(answer.records or b"")
            size_max = found.wanted.partition_max_bytes
            is_out_of_room = is_cut and left <= size_max
            if is_cut and not is_out_of_room:  # its own limit cuts: counted as if filled to the byte
                size += max(size_max - read, 0)
            if read:
                size += read
                ranges += 1
                left = max(left - read, 0)
            if not is_full and (is_out_of_room or (read and not left) or ranges == RANGES_MAX):
                is_full, left = True, 0
                self.is_urgent = True
                session.fetch_turn = index + (read > 0)
        if follower is not None:
            follower.is_heard = True
        self.ends = self._ends()
        return size

    # Partitions that are not to be read here

    def _name_of(self, topic: FetchTopic) -> str:
        if self.version < IDS_FROM:
            return topic.topic
        return self.services.view.image.names.get(TopicId(topic.topic_id), "")

    def _find(self, index: int, found: FetchedPartition) -> Replica | None:
        """The replica, or None after the answer says why there is none."""
        if self.version >= IDS_FROM and not found.topic:
            found.topic = self.services.view.image.names.get(TopicId(found.topic_id), "")
        if found.topic and not self._may_read(found.topic):
            self.answers[index] = failed(found.wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return None
        replica = self.services.replicas.get(found.topic, found.wanted.partition)
        if replica is None:
            answer = self.answers[index] = self.refusals.not_here(found)
            self.is_urgent = self.is_urgent or answer.error_code not in UNKNOWN
        return replica

    def _may_read(self, topic: str) -> bool:
        """Asked once a topic: nodes follow whatever they are told to, everyone else reads topics."""
        known = self.readable.get(topic)
        if known is None:
            services, context = self.services, self.context
            known = self.readable[topic] = (
                is_allowed(services, context, Operation.CLUSTER_ACTION, CLUSTER)
                if self.follower is not None
                else is_allowed(services, context, Operation.READ, topic_named(topic))
            )
        return known


def _warm(cold: Sequence[tuple[ColdReadError, int]]) -> None:
    for read, wanted in cold:
        read.warm(min(wanted, STRETCH_SIZE) + PROBE_DISTANCE)
