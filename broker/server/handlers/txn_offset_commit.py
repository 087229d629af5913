"""TxnOffsetCommit: positions of a group that count once a transaction is committed."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import ErrorCode, ProtocolError
from broker.groups.transactional_requests import producer_of, transactional_commit_response
from broker.server.access import group_named, is_allowed, require, topic_named, transactional_id
from broker.server.internal_topics import CONSUMER_OFFSETS
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.server.transaction_admission import Manner, ask, beginning_in, offset_commit_manner
from broker.types import TopicPartition
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_LOADING_FROM = 2
"""First version whose clients bear to hear that a group is still being read (KAFKA-7296)."""


async def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """The group coordinator keeps what exists; answers keep the order of the request."""
    require(services, context, Operation.WRITE, transactional_id(request.transactional_id))
    require(services, context, Operation.READ, group_named(request.group_id))
    asked = request.topics
    refused = _refused(services, context, request)
    request.topics = [
        type(topic)(
            name=topic.name,
            partitions=[
                partition
                for partition in topic.partitions
                if TopicPartition(topic.name, partition.partition_index) not in refused
            ],
        )
        for topic in asked
    ]
    errors = dict(refused)
    if any(topic.partitions for topic in request.topics):
        response = await _commit(services, request, offset_commit_manner(context.api_version))
        errors |= {
            TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }
    return _as_known(transactional_commit_response(asked, errors, ErrorCode.NONE), context.api_version)


def refuse(request: TxnOffsetCommitRequest, error: ProtocolError, version: int) -> TxnOffsetCommitResponse:
    """Every partition answered with the same error."""
    return _as_known(transactional_commit_response(request.topics, {}, error.code), version)


async def _commit(
    services: Services, request: TxnOffsetCommitRequest, manner: Manner
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    partition = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
    begun = beginning_in(services, partition, request.transactional_id, producer_of(request), manner)
    if begun is not None:
        problems = await ask(services, begun, manner)
        if problems:
            code = problems[partition].code
            # A coordinator that cannot be asked yet: for groups there is another code that all repeat.
            if code is ErrorCode.NOT_ENOUGH_REPLICAS:
                code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            raise ProtocolError(code)
    return await services.groups.commit_in_transaction(request)


def _refused(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Mapping[TopicPartition, ErrorCode]:
    refused = {}
    for topic in request.topics:
        allowed = is_allowed(services, context, Operation.READ, topic_named(topic.name))
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if not allowed:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif services.view.image.partition(partition) is None:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _as_known(response: TxnOffsetCommitResponse, version: int) -> TxnOffsetCommitResponse:
    if version < _LOADING_FROM:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response
