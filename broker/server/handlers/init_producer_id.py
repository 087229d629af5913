"""InitProducerId: an id for an idempotent producer, or for the one that owns a transactional id."""

from __future__ import annotations

from broker.coordinators.record_batches import NO_PRODUCER, ProducerIdentity
from broker.errors import ErrorCode, ProtocolError
from broker.server.access import is_allowed, refusal, require, topic_named, transactional_id
from broker.server.fenced_producers import code_for_version
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_FROM = 4


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A fresh id with epoch 0; for a transactional id whatever its coordinator says, which fences the
    producer that had it.

    Whoever may write to any topic may do so idempotently (KIP-679).
    """
    if request.transactional_id is None:
        _require_idempotence(services, context)
        return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
    require(services, context, Operation.WRITE, transactional_id(request.transactional_id))
    reply = await services.transactions.initialise(
        request.transactional_id, timeout_ms=request.transaction_timeout_ms, expected=_expected(request)
    )
    return InitProducerIdResponse(
        error_code=code_for_version(reply.error, context.api_version, fenced_from=_FENCED_FROM),
        producer_id=reply.producer.producer_id,
        producer_epoch=reply.producer.epoch,
    )


def refuse(request: InitProducerIdRequest, error: ProtocolError, version: int) -> InitProducerIdResponse:
    """No id."""
    return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)


def _require_idempotence(services: Services, context: RequestContext) -> None:
    if not is_allowed(services, context, Operation.IDEMPOTENT_WRITE, CLUSTER) and not any(
        is_allowed(services, context, Operation.WRITE, topic_named(name))
        for name in services.view.image.topics
    ):
        raise refusal(context, Operation.IDEMPOTENT_WRITE, CLUSTER)


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """Who the producer thinks it is, if anyone. Raises ProtocolError INVALID_REQUEST for half an identity."""
    told = ProducerIdentity(request.producer_id, request.producer_epoch)
    if told == NO_PRODUCER:
        return None
    if NO_PRODUCER.producer_id == told.producer_id or NO_PRODUCER.epoch == told.epoch:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "a producer id without its epoch, or the reverse")
    return told
