"""The records of `__consumer_offsets`, exactly as Kafka writes them.

Key `version int16 | …`: 0 and 1 are OffsetCommitKey (group, topic, partition), 2 is GroupMetadataKey (group),
those of the consumer protocol are in `consumer_groups.record_codec`; others are passed over. Values carry
their own version; no value is a tombstone. Offsets are written in version 3, in version 1 when they expire at
a time of their own (no other version can say so); groups in version 3. Offsets committed in a transaction sit
in transactional batches and count from its marker on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from broker.coordinators.record_batches import KeyValue
from broker.coordinators.stored_batches import Unreadable, read_batches, read_records
from broker.errors import WireError
from broker.groups.consumer_groups import record_codec
from broker.groups.consumer_groups.records import Change
from broker.groups.events import GroupMetadata, MemberMetadata
from broker.groups.offsets import NO_TIMESTAMP_MS, CommittedOffset
from broker.records.batch import MAGIC_POSITION, read_header, verify_crc
from broker.records.control import MarkerType, read_marker
from broker.types import Buffer, TopicPartition
from broker.wire.messages import group_records, offset_records

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3

_VERSION = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A generation of a group; None says that the group is gone."""

    group_id: str
    metadata: GroupMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A committed offset; None says that it is gone. `producer_id` is set while its transaction decides."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None
    producer_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The marker of a transaction that may have committed offsets here."""

    producer_id: int
    committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRecord:
    """A change of a group of the consumer protocol."""

    group_id: str
    change: Change


LogRecord = GroupRecord | OffsetRecord | ConsumerGroupRecord
LogEntry = LogRecord | TransactionEnded | Unreadable


def encode(record: LogRecord) -> KeyValue:
    """Key and value of a record. Raises WireError for a string over 32,767 bytes."""
    match record:
        case GroupRecord():
            key = group_records.GroupMetadataKey(group=record.group_id)
            value = _encode_group(record.metadata) if record.metadata is not None else None
            return key.encode_with_version(GROUP_KEY_VERSION), value
        case OffsetRecord():
            topic, partition = record.partition
            offset_key = offset_records.OffsetCommitKey(
                group=record.group_id, topic=topic, partition=partition
            )
            value = _encode_offset(record.committed) if record.committed is not None else None
            return offset_key.encode_with_version(OFFSET_KEY_VERSION), value
        case ConsumerGroupRecord():
            return record_codec.encode(record.group_id, record.change)


def decode(key: bytes, value: bytes | None) -> LogRecord | None:
    """The record of a key and value; None for kinds that other group protocols own. Raises WireError for
    garbled ones.
    """
    if len(key) < _VERSION.size:
        raise WireError(f"key of {len(key)} bytes holds no version")
    (version,) = _VERSION.unpack_from(key)
    if version in (0, OFFSET_KEY_VERSION):
        _, offset_key = offset_records.OffsetCommitKey.decode_with_version(key)
        return OffsetRecord(
            group_id=offset_key.group,
            partition=TopicPartition(offset_key.topic, offset_key.partition),
            committed=_decode_offset(value) if value is not None else None,
        )
    if version == GROUP_KEY_VERSION:
        _, group_key = group_records.GroupMetadataKey.decode_with_version(key)
        return GroupRecord(
            group_id=group_key.group, metadata=_decode_group(value) if value is not None else None
        )
    if version in record_codec.KEY_VERSIONS:
        group_id, change = record_codec.decode(version, key, value)
        return ConsumerGroupRecord(group_id=group_id, change=change)
    return None


def read_log(chunk: Buffer, *, batch_bytes_max: int) -> Iterator[LogEntry]:
    """What whole batches say, in order. Damage costs the record or batch it is in and is reported as
    `Unreadable`.

    `batch_bytes_max` bounds one batch uncompressed. Raises CorruptRecordsError when batches cannot be told
    apart.
    """
    return read_batches(chunk, lambda batch: _read_batch(batch, batch_bytes_max))


def _read_batch(batch: memoryview, batch_bytes_max: int) -> Iterator[LogEntry]:
    producer_id = None
    if batch[MAGIC_POSITION] >= 2:
        header = read_header(batch)
        if header.is_control:
            verify_crc(batch, 0, header)
            marker = read_marker(batch, header)
            if marker is not None:
                committed = marker.type is MarkerType.COMMIT
                yield TransactionEnded(producer_id=header.producer_id, committed=committed)
            return
        producer_id = header.producer_id if header.is_transactional else None
    for decoded in read_records(batch, decode, batch_bytes_max=batch_bytes_max):
        if isinstance(decoded, OffsetRecord) and producer_id is not None:
            decoded = OffsetRecord(
                group_id=decoded.group_id,
                partition=decoded.partition,
                committed=decoded.committed,
                producer_id=producer_id,
            )
        if decoded is not None:
            yield decoded


def _encode_offset(committed: CommittedOffset) -> bytes:
    value = offset_records.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP_MS
    return value.encode_with_version(OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION)


def _decode_offset(value: bytes) -> CommittedOffset:
    _, decoded = offset_records.OffsetCommitValue.decode_with_version(value)
    return CommittedOffset(
        offset=decoded.offset,
        leader_epoch=decoded.leader_epoch,
        metadata=decoded.metadata,
        commit_timestamp_ms=decoded.commit_timestamp,
        expire_timestamp_ms=decoded.expire_timestamp,
    )


def _encode_group(metadata: GroupMetadata) -> bytes:
    value = group_records.GroupMetadataValue(
        protocol_type=metadata.protocol_type,
        generation=metadata.generation,
        protocol=metadata.protocol,
        leader=metadata.leader,
        current_state_timestamp=metadata.state_timestamp_ms,
        members=[
            group_records.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in metadata.members
        ],
    )
    return value.encode_with_version(GROUP_VALUE_VERSION)


def _decode_group(value: bytes) -> GroupMetadata:
    _, decoded = group_records.GroupMetadataValue.decode_with_version(value)
    return GroupMetadata(
        protocol_type=decoded.protocol_type,
        generation=decoded.generation,
        protocol=decoded.protocol,
        leader=decoded.leader,
        state_timestamp_ms=decoded.current_state_timestamp,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in decoded.members
        ),
    )
