"""ListTransactions: the transactional ids that this node coordinates."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.server.access import is_allowed, transactional_id
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.transactions.coordinator import ListFilter
from broker.transactions.state import State
from broker.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = frozenset(state.value for state in State)


def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Those that may be described, by state, producer and age where asked; the error says that some are still
    being read.
    """
    wanted = ListFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        open_longer_than_ms=request.duration_filter,
    )
    loading = services.transactions.is_loading
    return ListTransactionsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE,
        unknown_state_filters=sorted(wanted.states - _STATES),
        transaction_states=[
            TransactionState(
                transactional_id=listed.transactional_id,
                producer_id=listed.transaction.producer_id,
                transaction_state=listed.transaction.state.value,
            )
            for listed in services.transactions.list(wanted)
            if is_allowed(services, context, Operation.DESCRIBE, transactional_id(listed.transactional_id))
        ],
    )
