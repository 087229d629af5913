"""Fetch: whole batches as they are stored, at once when there are enough, else when they come or the wait is
over.

Bytes are handed out partition by partition, as the client ordered them, until `max_bytes` is used up; the
first partition that has anything gets at least one batch (KIP-74). When a request was cut short by its
limit, the next one of the same connection begins with the partitions that got nothing. Answers are without a
session (session id 0), which every client accepts.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any, NamedTuple, cast

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.legacy import from_batches
from broker.replication.replica import READ_COMMITTED, Replica
from broker.replication.waits import wait_for_bytes
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.types import NO_TOPIC_ID, Buffer, TopicId
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)

_MIN_BATCH_FROM = 3
"""First version that gets a whole batch even over its limits."""
_IDS_FROM = 13
_SESSIONS_FROM = 7
_LEADER_HINT_FROM = 12
_FULL_SESSION_EPOCHS = (-1, 0)
EXPANSION_MAX = 64
"""How many times its limit a fetch may unpack to while it is converted for an old client."""


class _Wanted(NamedTuple):
    """One partition of a fetch; `answer` is filled in, again if the fetch waited."""

    topic: str
    partition: FetchPartition
    answer: PartitionData
    replica: Replica | None


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Answer with what is there, or wait for `min_bytes` up to `max_wait_ms`."""
    if request.session_id != 0:
        raise ProtocolError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if request.session_epoch not in _FULL_SESSION_EPOCHS:
        raise ProtocolError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    response = FetchResponse()
    wanted: list[_Wanted] = []
    for topic in request.topics:
        answers = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        response.responses.append(answers)
        for found in _find(services, context, topic):
            wanted.append(found)
            answers.partitions.append(found.answer)
    size = _read(services, context, request, wanted)
    if (
        size >= request.min_bytes
        or request.max_wait_ms <= 0
        or not wanted
        or any(found.answer.error_code for found in wanted)
    ):
        return response
    return _answer_later(services, context, request, response, wanted, size)


def refuse(request: FetchRequest, error: ProtocolError, version: int) -> FetchResponse:
    """An error of the whole request; before sessions existed, one for each of its partitions."""
    if version >= _SESSIONS_FROM:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=error.code,
                        high_watermark=-1,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _answer_later(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    response: FetchResponse,
    wanted: list[_Wanted],
    size: int,
) -> FetchResponse:
    replicas = [found.replica for found in wanted if found.replica is not None]
    await wait_for_bytes(replicas, request.min_bytes - size, request.max_wait_ms)
    _read(services, context, request, wanted)
    return response


def _find(services: Services, context: RequestContext, topic: FetchTopic) -> Iterator[_Wanted]:
    """The replicas of one topic's partitions; those that cannot be read have their error in the answer."""
    name, unknown = topic.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= _IDS_FROM:
        image = services.view.image.topic_of_id(TopicId(topic.topic_id))
        name = image.name if image is not None else ""
        if image is None and topic.topic_id != NO_TOPIC_ID:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
    for partition in topic.partitions:
        answer = PartitionData(partition_index=partition.partition, high_watermark=-1, records=b"")
        replica = services.replicas.get(name, partition.partition)
        if replica is None:
            known = services.view.image.topic(name)
            hosted_elsewhere = known is not None and partition.partition in known.partitions
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if hosted_elsewhere else unknown
        yield _Wanted(name, partition, answer, replica)


def _read(services: Services, context: RequestContext, request: FetchRequest, wanted: list[_Wanted]) -> int:
    """Fill in the answers and return the bytes they hold."""
    left = min(request.max_bytes, services.limits.fetch_size_max)
    version = context.api_version
    needs_batch = version >= _MIN_BATCH_FROM
    size, is_full = 0, False
    turn = context.session.fetch_turn % len(wanted) if wanted else 0
    for index, found in enumerate(wanted[turn:] + wanted[:turn] if turn else wanted):
        if found.replica is None:
            continue
        try:
            read, is_cut = _read_one(
                services, found, found.replica, request, version, left, needs_batch and size == 0
            )
        except ProtocolError as error:
            _fail(found, found.replica, error, version)
            continue
        size += read
        left = max(left - read, 0)
        if not is_full and (is_cut or (read and not left)):
            is_full, left = True, 0
            context.session.fetch_turn = turn + index + (read > 0)
    return size


def _read_one(
    services: Services,
    found: _Wanted,
    replica: Replica,
    request: FetchRequest,
    version: int,
    left: int,
    min_one_batch: bool,
) -> tuple[int, bool]:
    """How many bytes the partition got, and whether `left` was too little for more."""
    partition, answer = found.partition, found.answer
    replica.machine.require_leader(partition.current_leader_epoch)
    answer.high_watermark = replica.high_watermark
    answer.last_stable_offset = replica.last_stable_offset
    answer.log_start_offset = replica.log.log_start_offset
    if request.isolation_level == READ_COMMITTED:
        answer.aborted_transactions = []
        up_to = replica.last_stable_offset
    else:
        answer.aborted_transactions = None
        up_to = replica.high_watermark
    max_bytes = min(left, partition.partition_max_bytes)
    records = replica.read(
        partition.fetch_offset,
        max_bytes=max(max_bytes, 0),
        up_to=up_to,
        min_one_batch=min_one_batch or (version < _MIN_BATCH_FROM and left > 0),
    )
    next_offset = partition.fetch_offset if records is None else records.next_offset
    is_cut = left <= partition.partition_max_bytes and next_offset < up_to
    if records is None:
        answer.records = b""
        return 0, is_cut
    if version <= _MIN_BATCH_FROM:
        converted = _convert(services, records.read(), version, partition)
        answer.records = converted
        return len(converted), is_cut
    answer.records = cast(Buffer, records)  # sent from the file, see `Connection`
    return len(records), is_cut


def _convert(services: Services, batches: bytes, version: int, partition: FetchPartition) -> bytes:
    """Batches for a client that knows only message sets; cut at its limit, as such clients expect."""
    if not services.limits.downconversion:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "conversion for old clients is switched off")
    magic = 1 if version >= 2 else 0
    size_max = EXPANSION_MAX * max(len(batches), partition.partition_max_bytes)
    converted = from_batches(batches, magic, size_max=size_max, first_offset=partition.fetch_offset)
    return converted if version == _MIN_BATCH_FROM else converted[: partition.partition_max_bytes]


def _fail(found: _Wanted, replica: Replica, error: ProtocolError, version: int) -> None:
    answer = found.answer
    answer.error_code = (
        ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, CorruptRecordsError) else error.code
    )
    answer.records = b""
    answer.high_watermark = -1
    if version >= _LEADER_HINT_FROM and error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
    ):
        assignment = replica.machine.assignment
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=assignment.leader, leader_epoch=assignment.leader_epoch
        )
