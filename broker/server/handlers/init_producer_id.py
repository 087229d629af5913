"""InitProducerId: an id for an idempotent producer."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import is_allowed, refusal, topic_named
from broker.server.request import RequestContext
from broker.server.security import CLUSTER, Operation
from broker.server.services import Services
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A fresh id with epoch 0; ids with a transactional id behind them are not served.

    Whoever may write to any topic may do so idempotently (KIP-679).
    """
    if request.transactional_id is not None:
        code = (
            ErrorCode.INVALID_REQUEST
            if not request.transactional_id
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if not is_allowed(services, context, Operation.IDEMPOTENT_WRITE, CLUSTER) and not any(
        is_allowed(services, context, Operation.WRITE, topic_named(name))
        for name in services.view.image.topics
    ):
        raise refusal(context, Operation.IDEMPOTENT_WRITE, CLUSTER)
    return InitProducerIdResponse(producer_id=await services.producer_ids.next(), producer_epoch=0)
