"""Values of internal topics and of the consumer protocol, with the version they are led by."""

from __future__ import annotations

import pytest

from broker.errors import WireError
from broker.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from broker.wire.messages.group_records import GroupMetadataKey
from broker.wire.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from broker.wire.messages.transaction_records import TransactionLogValue


def test_a_committed_offset_is_stored_as_the_protocol_says() -> None:
    key = OffsetCommitKey(group="g", topic="tt", partition=3)
    assert key.encode_with_version(1) == bytes.fromhex("0001 0001 67 0002 7474 00000003")
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert value.encode_with_version(3) == bytes.fromhex(
        "0003 0000000000000005 00000002 0001 6d 0000000000000009"
    )
    assert value.encode_with_version(1) == bytes.fromhex(
        "0001 0000000000000005 0001 6d 0000000000000009 ffffffffffffffff"
    )
    assert GroupMetadataKey(group="g").encode_with_version(2) == bytes.fromhex("0002 0001 67")


def test_a_value_comes_back_with_its_version() -> None:
    value = OffsetCommitValue(offset=5, metadata="m")
    for version in range(5):
        assert OffsetCommitValue.decode_with_version(value.encode_with_version(version)) == (version, value)


def test_tagged_fields_of_a_transaction_are_left_out_unless_set() -> None:
    plain = TransactionLogValue(transaction_partitions=None)
    assert plain.encode(1).endswith(b"\0")
    changed = TransactionLogValue(transaction_partitions=None, client_transaction_version=2)
    assert changed.encode(1).endswith(bytes.fromhex("01 02 02 0002"))
    with pytest.raises(WireError, match="client_transaction_version"):
        changed.encode(0)


def test_a_newer_subscription_is_read_by_the_fields_that_are_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a"], generation_id=4, rack_id="r")
    newer = bytes.fromhex("0009") + subscription.encode(3) + b"something new"
    read = ConsumerProtocolSubscription.decode_with_version(newer, newer_as_latest=True)
    assert read == (9, subscription)
    with pytest.raises(WireError, match="versions 0 to 3, not 9"):
        ConsumerProtocolSubscription.decode_with_version(newer)


@pytest.mark.parametrize("stored", ["", "00", "ffff", "0000 ffffffff", "0000 00000001 0001"])
def test_torn_stored_values_are_refused(stored: str) -> None:
    with pytest.raises(WireError):
        ConsumerProtocolAssignment.decode_with_version(bytes.fromhex(stored), newer_as_latest=True)
