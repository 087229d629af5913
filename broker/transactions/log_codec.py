"""The records of `__transaction_state`, exactly as Kafka writes them.

Key: version 0, the transactional id. Value: version 0, or 1 where the cluster's `transaction.version` is at
least 1; no value is a tombstone. Only version 1 holds the ids before and after the producer's, and the
version that its client went by. Partitions are null while there is no transaction, and grouped by topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from broker.coordinators.record_batches import KeyValue
from broker.coordinators.stored_batches import Unreadable, read_batches, read_records
from broker.errors import WireError
from broker.records.batch import MAGIC_POSITION, read_header
from broker.transactions.state import STORED, State
from broker.transactions.transaction import Transaction
from broker.types import Buffer, TopicPartition
from broker.wire.messages.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

KEY_VERSION = 0
_STATES = {state.number: state for state in STORED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transactional id as of this record; None says that it is gone."""

    transactional_id: str
    transaction: Transaction | None


LogEntry = TransactionRecord | Unreadable


def encode(record: TransactionRecord, *, value_version: int) -> KeyValue:
    """Key and value of a record. Raises WireError for an id over 32,767 bytes."""
    key = TransactionLogKey(transactional_id=record.transactional_id).encode_with_version(KEY_VERSION)
    if record.transaction is None:
        return key, None
    return key, _encode_value(record.transaction, value_version)


def decode(key: bytes, value: bytes | None) -> TransactionRecord:
    """The record of a key and value. Raises WireError for garbled ones."""
    _, decoded = TransactionLogKey.decode_with_version(key)
    transaction = None if value is None else _decode_value(value)
    return TransactionRecord(transactional_id=decoded.transactional_id, transaction=transaction)


def read_log(chunk: Buffer, *, batch_bytes_max: int) -> Iterator[LogEntry]:
    """What whole batches say, in order. Damage costs the record or batch it is in and is reported as
    `Unreadable`.

    `batch_bytes_max` bounds one batch uncompressed. Raises CorruptRecordsError when batches cannot be told
    apart.
    """
    return read_batches(chunk, lambda batch: _read_batch(batch, batch_bytes_max))


def _read_batch(batch: memoryview, batch_bytes_max: int) -> Iterator[LogEntry]:
    if not (batch[MAGIC_POSITION] >= 2 and read_header(batch).is_control):
        yield from read_records(batch, decode, batch_bytes_max=batch_bytes_max)


def _encode_value(transaction: Transaction, version: int) -> bytes:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None if transaction.state is State.EMPTY else _grouped(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if version >= 1:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return value.encode_with_version(version)


def _grouped(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]


def _decode_value(data: bytes) -> Transaction:
    _, value = TransactionLogValue.decode_with_version(data)
    state = _STATES.get(value.transaction_status)
    if state is None:
        raise WireError(f"transaction status {value.transaction_status} is never stored")
    return Transaction(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
