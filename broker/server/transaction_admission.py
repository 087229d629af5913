"""Whether what begins a transaction in a partition may do so: asked of its coordinator, before it is stored.

Only the first write of a transaction to a partition is asked about; while the log has the transaction open
the others need nothing. The codes are those that the version of a request knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from broker.coordinators.record_batches import ProducerIdentity
from broker.errors import CorruptRecordsError, ErrorCode, ProtocolError
from broker.records.batch import HEADER_SIZE, MAGIC_POSITION, iterate_batches
from broker.replication.replica import Replica
from broker.server.services import Services
from broker.types import Buffer, TopicPartition
from broker.wire.messages.produce import ProduceRequest


class Manner(Enum):
    """How clients of a version deal with transactions (KIP-890)."""

    OLD = auto()
    ABORTABLE = auto()
    """They know TRANSACTION_ABORTABLE."""
    ADDING = auto()
    """A write begins the transaction by itself."""


def produce_manner(version: int) -> Manner:
    """Of a Produce request."""
    if version >= 12:
        return Manner.ADDING
    return Manner.ABORTABLE if version >= 11 else Manner.OLD


def offset_commit_manner(version: int) -> Manner:
    """Of a TxnOffsetCommit request."""
    if version >= 5:
        return Manner.ADDING
    return Manner.ABORTABLE if version >= 4 else Manner.OLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """The partitions in which a request begins its producer's transaction."""

    transactional_id: str
    producer: ProducerIdentity
    replicas: Mapping[TopicPartition, Replica]


def beginnings(services: Services, request: ProduceRequest, manner: Manner) -> Beginnings | None:
    """Those of a produce request with transactional batches; None where nothing has to be asked. Raises
    ProtocolError INVALID_PRODUCER_ID_MAPPING for batches of several producers.
    """
    if manner is not Manner.ADDING and not services.transaction_partitions.is_verifying:
        return None
    producer: ProducerIdentity | None = None
    begun: dict[TopicPartition, Replica] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            for found in _producers(data.records):
                if producer is not None and found != producer:
                    raise ProtocolError(
                        ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers in one request"
                    )
                producer = found
                replica = services.replicas.get(topic.name, data.index)
                if replica is None or not replica.machine.is_leader:
                    continue  # which is for others to refuse
                if not replica.log.producers.is_in_transaction(*producer):
                    begun[TopicPartition(topic.name, data.index)] = replica
    if producer is None or not begun:
        return None
    return Beginnings(
        transactional_id=request.transactional_id or "",
        producer=producer,
        replicas=begun,
    )


def beginning_in(
    services: Services,
    partition: TopicPartition,
    transactional_id: str,
    producer: ProducerIdentity,
    manner: Manner,
) -> Beginnings | None:
    """As `beginnings`, of what a coordinator on this node is to write to one partition."""
    if manner is not Manner.ADDING and not services.transaction_partitions.is_verifying:
        return None
    replica = services.replicas.get(*partition)
    if replica is None or not replica.machine.is_leader or replica.log.producers.is_in_transaction(*producer):
        return None
    return Beginnings(
        transactional_id=transactional_id,
        producer=producer,
        replicas={partition: replica},
    )


async def ask(services: Services, begun: Beginnings, manner: Manner) -> dict[TopicPartition, ProtocolError]:
    """Why partitions must not be written to, for those that must not; what is allowed has to be done before
    anything else happens.
    """
    questions = {
        partition: replica.verifications.begin(begun.producer.producer_id)
        for partition, replica in begun.replicas.items()
    }
    try:
        errors = await services.transaction_partitions.admit(
            begun.transactional_id,
            begun.producer,
            tuple(begun.replicas),
            adds=manner is Manner.ADDING,
        )
    finally:
        for partition, replica in begun.replicas.items():
            replica.verifications.end(questions[partition])
    refusals = {}
    for partition, question in questions.items():
        error = errors[partition]
        if error is ErrorCode.NONE and question.is_spoilt:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            refusals[partition] = _refusal(error, manner)
    return refusals


_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Answers of a coordinator that another one may follow."""


def _refusal(error: ErrorCode, manner: Manner) -> ProtocolError:
    """The coordinator's answer as a producer knows what to do with it. Those that may pass become one that
    all producers repeat, without looking for another leader.
    """
    if error in _AGAIN:
        return ProtocolError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction's coordinator could not tell: {error.name}"
        )
    if error is ErrorCode.PRODUCER_FENCED:
        return ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the transactional id")
    if error in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_SERVER_ERROR):
        code = ErrorCode.INVALID_TXN_STATE if manner is Manner.OLD else ErrorCode.TRANSACTION_ABORTABLE
        return ProtocolError(code, "the partition was not added to the transaction")
    return ProtocolError(error)


def _producers(records: Buffer | None) -> Iterator[ProducerIdentity]:
    """The producers of transactional batches; what is no batch is for others to refuse."""
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != 2:
        return
    try:
        for _, header in iterate_batches(records):
            if header.is_transactional and header.producer_id >= 0:
                yield ProducerIdentity(header.producer_id, header.producer_epoch)
    except CorruptRecordsError:
        return
