"""Records of the internal topics as documents: what `__consumer_offsets` and `__transaction_state` say.

A key is `{"type": version, "data": {...}}` and a value `{"version": version, "data": {...}}`, with the
protocol's own field names, as Kafka's tools print them; a tombstone is `<DELETE>`. What cannot be decoded is
shown as the bytes that it is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from struct import Struct as Layout
from typing import Any
from uuid import UUID

from broker.errors import WireError
from broker.storage.dump_line import FieldValue
from broker.wire.message import VersionedData
from broker.wire.messages import consumer_group_records as consumer_groups
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from broker.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from broker.wire.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from broker.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue
from broker.wire.schema import Struct

Schemas = Mapping[int, tuple[type[VersionedData], type[VersionedData]]]

OFFSETS: Schemas = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (consumer_groups.ConsumerGroupMetadataKey, consumer_groups.ConsumerGroupMetadataValue),
    4: (
        consumer_groups.ConsumerGroupPartitionMetadataKey,
        consumer_groups.ConsumerGroupPartitionMetadataValue,
    ),
    5: (consumer_groups.ConsumerGroupMemberMetadataKey, consumer_groups.ConsumerGroupMemberMetadataValue),
    6: (
        consumer_groups.ConsumerGroupTargetAssignmentMetadataKey,
        consumer_groups.ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        consumer_groups.ConsumerGroupTargetAssignmentMemberKey,
        consumer_groups.ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        consumer_groups.ConsumerGroupCurrentMemberAssignmentKey,
        consumer_groups.ConsumerGroupCurrentMemberAssignmentValue,
    ),
}
"""Key and value of each record type of `__consumer_offsets`, by the version of the key."""
TRANSACTIONS: Schemas = {0: (TransactionLogKey, TransactionLogValue)}
"""The same of `__transaction_state`."""

_VERSION = Layout(">h")
_DELETED = "<DELETE>"
_CONSUMER_PROTOCOL = "consumer"
_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def decode_offsets_record(key: bytes | None, value: bytes | None) -> tuple[FieldValue, FieldValue]:
    """Key and value of a record of `__consumer_offsets`."""
    return _decode(OFFSETS, key, value)


def decode_transaction_record(key: bytes | None, value: bytes | None) -> tuple[FieldValue, FieldValue]:
    """Key and value of a record of `__transaction_state`."""
    return _decode(TRANSACTIONS, key, value)


def _decode(schemas: Schemas, key: bytes | None, value: bytes | None) -> tuple[FieldValue, FieldValue]:
    if key is None or len(key) < _VERSION.size or (kind := _VERSION.unpack_from(key)[0]) not in schemas:
        return key, value
    key_schema, value_schema = schemas[kind]
    return (
        _document("type", key, key_schema) or key,
        _DELETED if value is None else _document("version", value, value_schema) or value,
    )


def _document(version_name: str, data: bytes, schema: type[VersionedData]) -> dict[str, object] | None:
    try:
        version, decoded = schema.decode_with_version(data)
    except WireError:
        return None
    document = _struct(decoded, version)
    if isinstance(decoded, GroupMetadataValue) and decoded.protocol_type == _CONSUMER_PROTOCOL:
        _open_members(document, decoded)
    if isinstance(decoded, TransactionLogValue) and 0 <= decoded.transaction_status < len(
        _TRANSACTION_STATES
    ):
        document["transactionStatus"] = _TRANSACTION_STATES[decoded.transaction_status]
    return {version_name: str(version), "data": document}


def _open_members(document: dict[str, Any], value: GroupMetadataValue) -> None:
    """Show what members of consumer groups told each other in place of its bytes."""
    opened: tuple[tuple[str, type[VersionedData], Callable[[Any], bytes]], ...] = (
        ("subscription", ConsumerProtocolSubscription, lambda member: member.subscription),
        ("assignment", ConsumerProtocolAssignment, lambda member: member.assignment),
    )
    for shown, member in zip(document["members"], value.members, strict=True):
        for name, schema, bytes_of in opened:
            try:
                version, decoded = schema.decode_with_version(bytes_of(member), newer_as_latest=True)
            except WireError:
                continue
            shown[name] = _struct(decoded, min(version, schema.max_version))


def _struct(value: Struct, version: int) -> dict[str, Any]:
    """The fields that the version carries, under the protocol's names."""
    return {
        _camel_case(field.name): _plain(getattr(value, field.name), version)
        for field in value.__fields__
        if version in field.versions
    }


def _plain(value: object, version: int) -> object:
    match value:
        case Struct():
            return _struct(value, version)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case str() | int() | None:
            return value
        case list() | tuple():
            return [_plain(element, version) for element in value]
        case _:
            return list(value)  # type: ignore[call-overload]  # a run of numbers


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
