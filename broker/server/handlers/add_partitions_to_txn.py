"""AddPartitionsToTxn: partitions that a transaction is about to write to, or whether they are part of one.

Clients ask for one transaction up to version 3, leaders of partitions for several from version 4 on. A topic
that must not be written to, or does not exist, fails the whole transaction's request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, require, topic_named, transactional_id
from broker.server.fenced_producers import code_for_version
from broker.server.internal_topics import INTERNAL_TOPICS
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_BATCHES_FROM = 4
_FENCED_FROM = 2
_ABORTABLE_FROM = 5

Errors = Mapping[TopicPartition, ErrorCode]


async def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Answered by the transaction coordinator; of several transactions each by itself."""
    version = context.api_version
    if version < _BATCHES_FROM:
        errors = await _add_for_client(services, context, request)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(request.v3_and_below_topics, errors)
        )
    require(services, context, Operation.CLUSTER_ACTION, CLUSTER)
    found = await asyncio.gather(
        *(_add_for_leader(services, asked, version) for asked in request.transactions)
    )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id, topic_results=_results(asked.topics, errors)
            )
            for asked, errors in zip(request.transactions, found, strict=True)
        ]
    )


def refuse(
    request: AddPartitionsToTxnRequest, error: ProtocolError, version: int
) -> AddPartitionsToTxnResponse:
    """The error as a whole, or partition by partition where the version has no room for it."""
    if version >= _BATCHES_FROM:
        return AddPartitionsToTxnResponse(error_code=error.code)
    topics = request.v3_and_below_topics
    errors = dict.fromkeys(_partitions(topics), error.code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, errors))


async def _add_for_client(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Errors:
    name, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
    require(services, context, Operation.WRITE, transactional_id(name))
    denied = {
        topic.name
        for topic in topics
        if topic.name in INTERNAL_TOPICS
        or not is_allowed(services, context, Operation.WRITE, topic_named(topic.name))
    }
    partitions = list(_partitions(topics))
    problems = dict.fromkeys(
        (partition for partition in partitions if partition.topic in denied),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ) | _unknown(services, (partition for partition in partitions if partition.topic not in denied))
    if problems:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | problems
    producer = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    error = await services.transactions.add_partitions(name, producer, partitions)
    code = code_for_version(error, context.api_version, fenced_from=_FENCED_FROM)
    return dict.fromkeys(partitions, code)


async def _add_for_leader(services: Services, asked: AddPartitionsToTxnTransaction, version: int) -> Errors:
    partitions = list(_partitions(asked.topics))
    producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    unknown = _unknown(services, partitions)
    if unknown:
        return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | unknown
    if not asked.verify_only:
        error = await services.transactions.add_partitions(asked.transactional_id, producer, partitions)
        return dict.fromkeys(partitions, error)
    found = services.transactions.verify(asked.transactional_id, producer, partitions)
    if version >= _ABORTABLE_FROM:
        return found
    return {
        partition: ErrorCode.INVALID_TXN_STATE if error is ErrorCode.TRANSACTION_ABORTABLE else error
        for partition, error in found.items()
    }


def _unknown(services: Services, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    image = services.view.image
    return {
        partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for partition in partitions
        if image.partition(partition) is None
    }


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Errors
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=errors[TopicPartition(topic.name, partition)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
