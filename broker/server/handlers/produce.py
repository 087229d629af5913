"""Produce: append to the partitions that this node leads.

A request is appended as a whole without a pause, straight from the receive buffer. Its answer waits only
where acks=all needs other replicas, or the flush settings need the disk. An error of acks=0 closes the
connection, as that is all the client can notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError, code_for_old_clients
from broker.records.batch import (
    HEADER_SIZE,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
    joint_attributes,
)
from broker.records.validation import InvalidRecordsError
from broker.replication.replica import Replica
from broker.server.access import is_allowed, refusal, topic_named, transactional_id
from broker.server.internal_topics import INTERNAL_TOPICS
from broker.server.later_answers import LaterAnswer
from broker.server.produce_forwarding import Parts, merged
from broker.server.request import ConnectionClosedError, Encoded, RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.server.transaction_admission import Beginnings, ask, beginnings, produce_manner
from broker.storage.admission import Opening, admit
from broker.storage.appends import Appended
from broker.types import TopicPartition
from broker.wire.header import encode_response
from broker.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from broker.wire.registry import api_of

_API = api_of(ProduceRequest)
_STORAGE_ERROR_FROM = 4
"""First version whose clients know KAFKA_STORAGE_ERROR."""


class _Outcome(NamedTuple):
    """What became of one partition of a request: an append, or an error."""

    partition: int
    replica: Replica | None
    appended: Appended | None
    waits: bool
    """Whether the answer is not due yet."""
    error: ProtocolError | None
    opening: Opening | None = None
    """What is to be done in a thread before anything can be appended."""


class _Pending(NamedTuple):
    """An append whose answer is not due yet."""

    replica: Replica
    next_offset: int
    acknowledged: asyncio.Future[None] | None
    """By the other replicas, as far as that is waited for."""
    answer: PartitionProduceResponse


def handle(
    services: Services, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Encoded | LaterAnswer | Coroutine[Any, Any, ProduceResponse | None] | None:
    """Append, and answer at once unless replicas or the disk have to be waited for."""
    version, acks = context.api_version, request.acks
    if acks < -1 or (acks > 1 and version > 0):
        return refuse(request, ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS), version)
    if _is_transactional(request):
        problem = _transactional_problem(services, context, request.transactional_id)
        if problem is not None:
            return _answer(refuse(request, problem, version), acks, version)
        begun = beginnings(services, request, produce_manner(version))
        if begun is not None:
            return _ask_and_append(services, context, request, begun)
    elif request.forward:
        parts = _parts(services, context, request)
        if parts.others:
            return _append_and_forward(services, context, request, parts)
    outcomes = _append_all(services, context, request.topic_data, acks, {})
    if len(outcomes) == 1 and len(outcomes[0][1]) == 1 and acks:
        topic, (outcome,) = outcomes[0]
        answer = _answer_for_one(services, context, request, topic, outcome)
        if answer is not None:
            return answer
    if any(outcome.opening is not None for _, partitions in outcomes for outcome in partitions):
        return _open_and_append(services, outcomes, request, version)
    pending: list[_Pending] = []
    response = _respond(outcomes, acks, pending)
    if not pending:
        return _answer(response, acks, version)
    if any(append.acknowledged is None or append.replica.flush_is_due for append in pending):
        return _answer_later(response, pending, request, version)
    return _answer_when_replicated(response, pending, context, request)


def _append_all(
    services: Services,
    context: RequestContext,
    topics: Sequence[TopicProduceData],
    acks: int,
    refusals: Mapping[TopicPartition, ProtocolError],
) -> list[tuple[str, list[_Outcome]]]:
    """Append to every partition but those of `refusals`."""
    version, now_ms = context.api_version, services.clock.now_ms()
    return [
        (
            topic.name,
            [
                _append(services, topic.name, data, acks, version, now_ms, refusals)
                for data in topic.partition_data
            ]
            if is_allowed(services, context, Operation.WRITE, topic_named(topic.name))
            else list(_forbidden(context, topic)),
        )
        for topic in topics
    ]


def _ask_and_append(
    services: Services, context: RequestContext, request: ProduceRequest, begun: Beginnings
) -> Coroutine[Any, Any, ProduceResponse | None]:
    """Append what the coordinator of its transaction allows. The records are taken out of the request, which
    is used again for the next one.
    """
    topics = [
        TopicProduceData(
            name=topic.name,
            partition_data=[
                PartitionProduceData(index=data.index, records=data.records) for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]

    async def append() -> ProduceResponse | None:
        refusals = await ask(services, begun, produce_manner(context.api_version))
        outcomes = _append_all(services, context, topics, request.acks, refusals)
        return await _open_and_append(services, outcomes, request, context.api_version)

    return append()


def _parts(services: Services, context: RequestContext, request: ProduceRequest) -> Parts:
    """The request by who leads what; only what the client may write is passed on."""
    allowed = [
        topic.name
        for topic in request.topic_data
        if is_allowed(services, context, Operation.WRITE, topic_named(topic.name))
    ]
    return services.forwarding.divide(request, allowed)


async def _append_and_forward(
    services: Services, context: RequestContext, request: ProduceRequest, parts: Parts
) -> ProduceResponse | None:
    """Append what this node leads, and pass on the rest meanwhile."""
    outcomes = _append_all(services, context, parts.own, request.acks, {})
    own, others = await asyncio.gather(
        _open_and_append(services, outcomes, request, context.api_version),
        services.forwarding.send(parts, request),
    )
    return _answer(merged(own, others), request.acks, context.api_version)


def _answer_for_one(
    services: Services, context: RequestContext, request: ProduceRequest, topic: str, outcome: _Outcome
) -> Encoded | LaterAnswer | None:
    """The answer to a request with one partition, as the commonest are; None where it is not so simple."""
    appended, replica, index = outcome.appended, outcome.replica, outcome.partition
    if appended is None or replica is None:
        return None
    encode = partial(
        services.produce_answers.encode, context.api_version, context.correlation_id, topic, index, appended
    )
    if not outcome.waits:
        return encode()
    if replica.flush_is_due:
        return None
    acks, version, correlation_id = request.acks, context.api_version, context.correlation_id
    acknowledged = replica.acknowledgement(appended.last_offset + 1, acks)
    if acknowledged is None:
        return None

    def encode_later() -> Encoded:
        problem = _problem_of(replica, acknowledged, acks)
        if problem is None:
            return encode()
        answer = _appended(index, appended)
        answer.error_code, answer.error_message = problem.code, problem.message
        topics = [TopicProduceResponse(name=topic, partition_responses=[answer])]
        return _encoded(ProduceResponse(responses=topics), acks, version, correlation_id)

    return LaterAnswer([acknowledged], request.timeout_ms, encode_later)


def _respond(
    outcomes: Sequence[tuple[str, Sequence[_Outcome]]], acks: int, pending: list[_Pending]
) -> ProduceResponse:
    """The response to a request, but for what `pending` has then."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic, partition_responses=[_answer_one(each, acks, pending) for each in partitions]
            )
            for topic, partitions in outcomes
        ]
    )


async def _open_and_append(
    services: Services,
    outcomes: Sequence[tuple[str, list[_Outcome]]],
    request: ProduceRequest,
    version: int,
) -> ProduceResponse | None:
    """Append what had to be opened in threads first, and answer the whole request."""
    for topic, partitions in outcomes:
        for index, outcome in enumerate(partitions):
            if outcome.opening is not None:
                partitions[index] = await _opened(services, topic, outcome, request.acks)
    pending: list[_Pending] = []
    response = _respond(outcomes, request.acks, pending)
    return await _answer_later(response, pending, request, version)


async def _opened(services: Services, topic: str, outcome: _Outcome, acks: int) -> _Outcome:
    replica, opening = outcome.replica, outcome.opening
    assert replica is not None, "only what has a log is opened for it"
    assert opening is not None, "called for what is to be opened"
    try:
        records = await services.openings.in_thread(topic, opening)
        return _store(services, replica, outcome.partition, records, acks, services.clock.now_ms())
    except ProtocolError as error:
        services.refused_batches.refused(replica.topic_partition, opening.records, error)
        return _Outcome(outcome.partition, None, None, False, error)


def refuse(request: ProduceRequest, error: ProtocolError, version: int) -> ProduceResponse:
    """Every partition answered with the same error."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[_failed(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _forbidden(context: RequestContext, topic: TopicProduceData) -> Iterator[_Outcome]:
    error = refusal(context, Operation.WRITE, topic_named(topic.name))
    for data in topic.partition_data:
        yield _Outcome(data.index, None, None, False, error)


def _is_transactional(request: ProduceRequest) -> bool:
    """Whether any batch is part of a transaction. Records that are none are for `admit` to refuse."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != 2:
                continue
            try:
                if joint_attributes(records) & TRANSACTIONAL_FLAG:
                    return True
            except CorruptRecordsError:
                continue
    return False


def _transactional_problem(
    services: Services, context: RequestContext, name: str | None
) -> ProtocolError | None:
    """Why the request may not write to the transactions of the id that it names, None when it may."""
    if name is None:
        return ProtocolError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactional records without a transactional id",
        )
    resource = transactional_id(name)
    if is_allowed(services, context, Operation.WRITE, resource):
        return None
    return refusal(context, Operation.WRITE, resource)


def _append(
    services: Services,
    topic: str,
    data: PartitionProduceData,
    acks: int,
    version: int,
    now_ms: int,
    refusals: Mapping[TopicPartition, ProtocolError],
) -> _Outcome:
    index = data.index
    try:
        if topic in INTERNAL_TOPICS:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by its cluster only")
        replica = services.replicas.find(topic, index)
        if refusals and (refusal := refusals.get(replica.topic_partition)) is not None:
            raise refusal
        records = admit(data.records, replica.log.admission_rules, version=version, now_ms=now_ms)
        if isinstance(records, Opening):
            opened = services.openings.at_once(topic, records)
            if opened is None:
                return _Outcome(index, replica, None, True, None, records)
            records = opened
        return _store(services, replica, index, records, acks, now_ms)
    except ProtocolError as error:
        if data.records is not None:
            services.refused_batches.refused(TopicPartition(topic, index), data.records, error)
        return _Outcome(index, None, None, False, error)


def _store(
    services: Services,
    replica: Replica,
    index: int,
    records: bytearray | memoryview,
    acks: int,
    now_ms: int,
) -> _Outcome:
    refused = services.refused_batches
    if not replica.free_space.admits(len(records)):
        replica.refuse_for_space(records)
    if refused:
        refused.require_in_turn(replica.topic_partition, records)
    appended = replica.append(records, acks=acks, now_ms=now_ms)
    if refused:
        refused.appended(replica.topic_partition, records)
    waits = replica.flush_is_due or not replica.is_acknowledged(appended.last_offset + 1, acks)
    return _Outcome(index, replica, appended, waits, None)


def _answer_one(outcome: _Outcome, acks: int, pending: list[_Pending]) -> PartitionProduceResponse:
    """The answer for one partition; what has to be waited for is noted in `pending`."""
    if outcome.error is not None:
        return _failed(outcome.partition, outcome.error)
    replica, appended = outcome.replica, outcome.appended
    assert replica is not None, "an outcome is an append or an error"
    assert appended is not None, "an outcome is an append or an error"
    answer = _appended(outcome.partition, appended)
    if outcome.waits:
        next_offset = appended.last_offset + 1
        pending.append(_Pending(replica, next_offset, replica.acknowledgement(next_offset, acks), answer))
    return answer


def _appended(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _failed(index: int, error: ProtocolError) -> PartitionProduceResponse:
    problems = error.problems if isinstance(error, InvalidRecordsError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=problem.batch_index, batch_index_error_message=problem.message
            )
            for problem in problems
        ],
        error_message=error.message,
    )


async def _answer_later(
    response: ProduceResponse, pending: list[_Pending], request: ProduceRequest, version: int
) -> ProduceResponse | None:
    """Wait for the disk and the other replicas; what is not done in time is answered so, and may yet be
    committed.
    """
    finished = 0
    try:
        async with asyncio.timeout(max(request.timeout_ms, 0) / 1000):
            for append in pending:
                await _settle(append, request.acks)
                finished += 1
    except TimeoutError:
        for append in pending[finished:]:
            append.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            if append.acknowledged is not None:
                append.acknowledged.cancel()
    return _answer(response, request.acks, version)


async def _settle(append: _Pending, acks: int) -> None:
    replica = append.replica
    try:
        if replica.flush_is_due:
            await replica.flush_through(append.next_offset)
        if append.acknowledged is not None:
            await append.acknowledged
            _require_in_sync(replica, acks)
    except ProtocolError as error:
        append.answer.error_code = error.code
        append.answer.error_message = error.message


def _require_in_sync(replica: Replica, acks: int) -> None:
    """Raises ProtocolError when what was appended is committed, but is on too few replicas."""
    if acks == -1 and len(replica.machine.isr) < replica.log.config.min_insync_replicas:
        raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def _answer_when_replicated(
    response: ProduceResponse, pending: Sequence[_Pending], context: RequestContext, request: ProduceRequest
) -> LaterAnswer:
    """As `_answer_later` where only replicas are waited for: the connection goes on meanwhile, so nothing of
    the request may be kept.
    """
    acks, version, correlation_id = request.acks, context.api_version, context.correlation_id

    def encode() -> Encoded:
        for append in pending:
            _note_outcome(append, acks)
        return _encoded(response, acks, version, correlation_id)

    waits = [append.acknowledged for append in pending if append.acknowledged is not None]
    return LaterAnswer(waits, request.timeout_ms, encode)


def _note_outcome(append: _Pending, acks: int) -> None:
    """Of an append whose wait for replicas is over."""
    assert append.acknowledged is not None, "called for what waits for replicas"
    problem = _problem_of(append.replica, append.acknowledged, acks)
    if problem is not None:
        append.answer.error_code = problem.code
        append.answer.error_message = problem.message


def _problem_of(replica: Replica, acknowledged: asyncio.Future[None], acks: int) -> ProtocolError | None:
    """Why an append whose wait is over is not acknowledged; None when it is."""
    if acknowledged.cancelled():
        return ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
    try:
        acknowledged.result()
        _require_in_sync(replica, acks)
    except ProtocolError as error:
        return error
    return None


def _encoded(response: ProduceResponse, acks: int, version: int, correlation_id: int) -> Encoded:
    """The frame of an answer that comes later."""
    told = _answer(response, acks, version)
    assert told is not None, "a request that waits for replicas is answered"
    return Encoded((b"".join(encode_response(told, _API, version, correlation_id)),))


def _answer(response: ProduceResponse, acks: int, version: int) -> ProduceResponse | None:
    """With acks=0 there is none. Raises ConnectionClosedError when such a request failed."""
    if acks:
        if version < _STORAGE_ERROR_FROM:
            for topic in response.responses:
                for partition in topic.partition_responses:
                    partition.error_code = code_for_old_clients(
                        ErrorCode.of(partition.error_code), version, known_from=_STORAGE_ERROR_FROM
                    )
        return response
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                error = ErrorCode.of(partition.error_code)
                raise ConnectionClosedError(f"a produce with acks=0 failed: {error.name}")
    return None
