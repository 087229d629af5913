"""Records of consumer groups: the very bytes that Apache Kafka 4.1 writes, and back."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.errors import WireError
from broker.groups.consumer_groups.members import (
    Assignment,
    ClassicMembership,
    MemberState,
    Subscription,
    TopicIdPartition,
)
from broker.groups.consumer_groups.record_codec import KEY_VERSIONS
from broker.groups.consumer_groups.records import (
    Change,
    GroupEpoch,
    MemberAssignment,
    MemberSubscription,
    MemberTarget,
    PatternResolution,
    ResolvedPattern,
    SubscribedTopics,
    TargetEpoch,
    key_of,
)
from broker.groups.consumer_groups.topics import Topic
from broker.groups.log_codec import ConsumerGroupRecord, decode, encode
from broker.types import TopicId

FIRST, SECOND = TopicId(UUID(int=1)), TopicId(UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))

CASES: dict[str, tuple[Change, str, str]] = {
    "epoch": (GroupEpoch(epoch=10), "0003000167", "00000000000a00"),
    "topics": (
        SubscribedTopics(topics=(Topic(name="flights", topic_id=FIRST, partition_count=3),)),
        "0004000167",
        "0000020000000000000000000000000000000108666c696768747300000003010000",
    ),
    "member": (
        MemberSubscription(
            member_id="m",
            subscription=Subscription(
                instance_id="i",
                rack_id="r",
                client_id="c",
                client_host="/127.0.0.1",
                topics=frozenset({"b", "a"}),
                pattern="f.*",
                rebalance_timeout_ms=300_000,
                assignor="range",
            ),
        ),
        "000500016700016d",
        "00000269027202630b2f3132372e302e302e31030261026204662e2a000493e00672616e676500",
    ),
    "member with nothing more": (
        MemberSubscription(
            member_id="m",
            subscription=Subscription(
                client_id="c",
                client_host="/127.0.0.1",
                topics=frozenset({"a"}),
                rebalance_timeout_ms=300_000,
            ),
        ),
        "000500016700016d",
        "0000000002630b2f3132372e302e302e3102026100000493e00000",
    ),
    "member of the classic protocol": (
        MemberSubscription(
            member_id="m",
            subscription=Subscription(
                instance_id="",
                rack_id="",
                client_id="c",
                client_host="/h",
                topics=frozenset({"a"}),
                pattern="",
                rebalance_timeout_ms=1000,
                assignor="",
                classic=ClassicMembership(session_timeout_ms=10_000, protocols=(("range", b"\x00\x01\x02"),)),
            ),
        ),
        "000500016700016d",
        "000001010263032f6802026101000003e8010100120100002710020672616e6765040001020000",
    ),
    "target epoch": (TargetEpoch(epoch=9), "0006000167", "00000000000900"),
    "target": (
        MemberTarget(
            member_id="m",
            partitions=frozenset(
                {TopicIdPartition(SECOND, 1), TopicIdPartition(FIRST, 2), TopicIdPartition(FIRST, 0)}
            ),
        ),
        "000700016700016d",
        "00000300000000000000000000000000000001030000000000000002000102030405060708090a0b0c0d0e0f10020000000"
        "10000",
    ),
    "assignment": (
        MemberAssignment(
            member_id="m",
            assignment=Assignment(
                epoch=8,
                previous_epoch=7,
                state=MemberState.UNREVOKED,
                assigned=frozenset({TopicIdPartition(FIRST, 0), TopicIdPartition(FIRST, 1)}),
                revoking=frozenset({TopicIdPartition(SECOND, 5)}),
            ),
        ),
        "000800016700016d",
        "0000000000080000000701020000000000000000000000000000000103000000000000000100020102030405060708090a"
        "0b0c0d0e0f1002000000050000",
    ),
    "regular expression": (
        PatternResolution(
            pattern="f.*",
            resolved=ResolvedPattern(
                topics=frozenset({"fb", "fa"}), version=3, timestamp_ms=1_700_000_000_000
            ),
        ),
        "00100001670003662e2a",
        "00000303666103666200000000000000030000018bcfe5680000",
    ),
}

TOMBSTONES: tuple[Change, ...] = (
    GroupEpoch(epoch=None),
    SubscribedTopics(topics=None),
    MemberSubscription(member_id="m", subscription=None),
    TargetEpoch(epoch=None),
    MemberTarget(member_id="m", partitions=None),
    MemberAssignment(member_id="m", assignment=None),
    PatternResolution(pattern="f.*", resolved=None),
)


@pytest.mark.parametrize("name", CASES)
def test_records_are_those_of_apache_kafka(name: str) -> None:
    change, key, value = CASES[name]
    record = ConsumerGroupRecord(group_id="g", change=change)
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize("change", TOMBSTONES, ids=lambda each: type(each).__name__)
def test_what_is_gone_has_a_key_and_no_value(change: Change) -> None:
    key, value = encode(ConsumerGroupRecord(group_id="g", change=change))
    assert value is None
    assert decode(key, value) == ConsumerGroupRecord(group_id="g", change=change)


def test_every_kind_of_record_has_a_case() -> None:
    versions = {int(key[:4], 16) for _, key, _ in CASES.values()}
    assert versions == KEY_VERSIONS
    assert {type(change) for change, _, _ in CASES.values()} == {type(change) for change in TOMBSTONES}


def test_changes_of_the_same_thing_have_the_same_key() -> None:
    for name, (change, key, _) in CASES.items():
        for other, (another, its, _) in CASES.items():
            assert (key_of(change) == key_of(another)) == (key == its), (name, other)


def test_a_member_in_an_unknown_state_is_unreadable() -> None:
    with pytest.raises(WireError, match="state 9"):
        decode(bytes.fromhex("000800016700016d"), bytes.fromhex("00000000000800000007090101" + "00"))
