"""EndTxn: commit or abort a transaction."""

from __future__ import annotations

from broker.coordinators.record_batches import ProducerIdentity
from broker.server.access import require, transactional_id
from broker.server.fenced_producers import code_for_version
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.transactions.transaction import EPOCH_BUMP_VERSION
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_EPOCH_BUMP_FROM = 5
"""First version whose clients go on with the epoch that they are answered (KIP-890)."""


async def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answered by the transaction coordinator once the outcome is decided for good."""
    require(services, context, Operation.WRITE, transactional_id(request.transactional_id))
    version = context.api_version
    reply = await services.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        commits=request.committed,
        version=EPOCH_BUMP_VERSION if version >= _EPOCH_BUMP_FROM else 0,
    )
    return EndTxnResponse(
        error_code=code_for_version(reply.error, version, fenced_from=_FENCED_FROM),
        producer_id=reply.producer.producer_id,
        producer_epoch=reply.producer.epoch,
    )
