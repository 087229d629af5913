"""DescribeTransactions: transactional ids as their coordinator has them."""

from __future__ import annotations

from collections import defaultdict

from broker.errors import ProtocolError
from broker.server.access import is_allowed, require, topic_named, transactional_id
from broker.server.request import RequestContext
from broker.server.security import Operation
from broker.server.services import Services
from broker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Each id by itself, with those of its topics that may be described."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(services, context, name) for name in request.transactional_ids]
    )


def _describe(services: Services, context: RequestContext, name: str) -> TransactionState:
    try:
        require(services, context, Operation.DESCRIBE, transactional_id(name))
        transaction = services.transactions.describe(name)
    except ProtocolError as error:
        return TransactionState(error_code=error.code, transactional_id=name)
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        if is_allowed(services, context, Operation.DESCRIBE, topic_named(topic)):
            topics[topic].append(partition)
    return TransactionState(
        transactional_id=name,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )
