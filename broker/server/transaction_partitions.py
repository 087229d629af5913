"""The way of a leader to the coordinators of transactions: whether a transaction may write to a partition.

What is to be asked of one node meanwhile goes into one request, an id once in each, so that the busier it is
the more a request holds. Producers that begin transactions by writing (KIP-890, second part) have their
partitions added; for others it is only looked up whether they added them. Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from broker.clock import Clock
from broker.cluster.image import BrokerInfo
from broker.coordinators.placement import partition_of
from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import (
    ConnectionFailedError,
    ErrorCode,
    ProtocolError,
    RequestTimedOutError,
    WireError,
)
from broker.server.cluster_view import ClusterView
from broker.server.internal_topics import TRANSACTION_STATE
from broker.telemetry import logger
from broker.transactions.coordinator import TransactionCoordinator
from broker.types import BrokerId, TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_log = logger("transactions")

TRANSACTIONS_PER_REQUEST_MAX = 500

Errors = Mapping[TopicPartition, ErrorCode]


class NodeSender(Protocol):
    """Requests to other nodes."""

    async def send(self, broker: BrokerInfo, request: Request[ResponseType]) -> ResponseType:
        """Raises ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationSettings:
    """Each field names its setting."""

    enable: bool = True
    """`transaction.partition.verification.enable`."""
    backoff_ms: int = 20
    """`add.partitions.to.txn.retry.backoff.ms`."""
    retry_ms_max: int = 100
    """`add.partitions.to.txn.retry.backoff.max.ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    transactional_id: str
    producer: ProducerIdentity
    partitions: Collection[TopicPartition]
    adds: bool
    answer: asyncio.Future[Errors]

    def answered(self, errors: Errors) -> None:
        if not self.answer.done():
            self.answer.set_result(errors)

    def failed(self, error: ErrorCode) -> None:
        self.answered(dict.fromkeys(self.partitions, error))


class TransactionPartitions:
    """See the module's description."""

    def __init__(
        self,
        own_id: BrokerId,
        view: ClusterView,
        coordinator: TransactionCoordinator,
        nodes: NodeSender,
        clock: Clock,
        settings: VerificationSettings,
        *,
        start: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`start` runs work as a task of the node."""
        self._own_id = own_id
        self._view = view
        self._coordinator = coordinator
        self._nodes = nodes
        self._clock = clock
        self._settings = settings
        self._start = start
        self._waiting: dict[BrokerId, deque[_Question]] = {}
        self._busy: set[BrokerId] = set()
        self.refused_count = 0
        """Partitions that transactions were not let write to."""

    @property
    def is_verifying(self) -> bool:
        """Whether producers that add partitions themselves are asked after."""
        return self._settings.enable

    async def admit(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Errors:
        """NONE for each partition that the producer's transaction may write to from now on, or why not, as
        the coordinator says.

        With `adds` a coordinator that is still ending the last transaction is asked again for a while.
        """
        began_ms = self._clock.monotonic_ms()
        while True:
            errors = await self._ask(transactional_id, producer, partitions, adds=adds)
            is_early = adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not is_early or self._clock.monotonic_ms() - began_ms >= self._settings.retry_ms_max:
                break
            await asyncio.sleep(self._settings.backoff_ms / 1000)
        self.refused_count += sum(error is not ErrorCode.NONE for error in errors.values())
        return errors

    async def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Errors:
        node = self._node_of(transactional_id)
        if node is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node == self._own_id:
            if not adds:
                return self._coordinator.verify(transactional_id, producer, partitions)
            error = await self._coordinator.add_partitions(transactional_id, producer, partitions)
            return dict.fromkeys(partitions, error)
        question = _Question(
            transactional_id=transactional_id,
            producer=producer,
            partitions=partitions,
            adds=adds,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._waiting.setdefault(node, deque()).append(question)
        if node not in self._busy:
            self._busy.add(node)
            self._start(self._serve(node))
        return await question.answer

    def _node_of(self, transactional_id: str) -> BrokerId | None:
        topic = self._view.image.topic(TRANSACTION_STATE)
        if topic is None:
            return None
        partition = topic.partitions.get(partition_of(transactional_id, len(topic.partitions)))
        return partition.leader if partition is not None and partition.has_leader else None

    async def _serve(self, node: BrokerId) -> None:
        """Ask one node until there is nothing to ask."""
        try:
            while waiting := self._waiting.get(node):
                await self._send(node, _taken(waiting))
        finally:
            self._busy.discard(node)
            for question in self._waiting.pop(node, ()):
                question.failed(ErrorCode.NETWORK_EXCEPTION)

    async def _send(self, node: BrokerId, questions: Sequence[_Question]) -> None:
        broker = self._view.image.brokers.get(node)
        try:
            if broker is None:
                raise ConnectionFailedError(f"broker {node} is not there")
            response = await self._nodes.send(broker, _request(questions))
        except (ConnectionFailedError, RequestTimedOutError, ProtocolError, WireError) as error:
            _log.warning("coordinator_not_asked", broker_id=node, reason=str(error))
            for question in questions:
                question.failed(ErrorCode.NETWORK_EXCEPTION)
            return
        if response.error_code:
            for question in questions:
                question.failed(ErrorCode.of(response.error_code))
            return
        results = {result.transactional_id: result for result in response.results_by_transaction}
        for question in questions:
            result = results.get(question.transactional_id)
            errors = {
                TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
                for topic in (result.topic_results if result is not None else ())
                for each in topic.results_by_partition
            }
            question.answered(
                {
                    partition: errors.get(partition, ErrorCode.NETWORK_EXCEPTION)
                    for partition in question.partitions
                }
            )


def _taken(waiting: deque[_Question]) -> list[_Question]:
    """What goes into one request: an id once, so that answers are told apart."""
    taken: dict[str, _Question] = {}
    left = []
    while waiting and len(taken) < TRANSACTIONS_PER_REQUEST_MAX:
        question = waiting.popleft()
        if question.transactional_id in taken:
            left.append(question)
        else:
            taken[question.transactional_id] = question
    waiting.extendleft(reversed(left))
    return list(taken.values())


def _request(questions: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=question.transactional_id,
                producer_id=question.producer.producer_id,
                producer_epoch=question.producer.epoch,
                verify_only=not question.adds,
                topics=_topics(question.partitions),
            )
            for question in questions
        ]
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        numbers[topic].append(partition)
    return [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in numbers.items()]
