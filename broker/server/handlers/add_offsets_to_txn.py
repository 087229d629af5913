"""AddOffsetsToTxn: a transaction is about to commit offsets of a group, so it writes to the group's
partition.
"""

from __future__ import annotations

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import group_named, require, transactional_id
from broker.server.fenced_producers import code_for_version
from broker.server.internal_topics import CONSUMER_OFFSETS
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.types import TopicPartition
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM = 2


async def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Answered by the transaction coordinator; clients look for the group's own coordinator only
    afterwards.
    """
    require(services, context, Operation.WRITE, transactional_id(request.transactional_id))
    require(services, context, Operation.READ, group_named(request.group_id))
    if services.view.image.topic(CONSUMER_OFFSETS) is None:
        try:
            await services.topics.ensure(CONSUMER_OFFSETS)
        except ProtocolError as problem:
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem.message) from problem
    error = await services.transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        [TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))],
    )
    code = code_for_version(error, context.api_version, fenced_from=_FENCED_FROM)
    return AddOffsetsToTxnResponse(error_code=code)
