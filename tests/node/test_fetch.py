"""Fetching from a real node: sessions, limits that starve nobody, who leads, and whose history it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

import pytest

from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.reader import read_all
from broker.types import HostPort
from broker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import ClusterFactory, until
from tests.node.raw_client import (
    FETCH_VERSION,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    values_of,
)

LONG_MS = 20_000
QUICK_SECONDS = 10


def told(response: FetchResponse) -> dict[int, PartitionData]:
    """The partitions of an answer by number."""
    assert response.error_code == ErrorCode.NONE
    return {answer.partition_index: answer for topic in response.responses for answer in topic.partitions}


def session_request(topic: str, offsets: dict[int, int], *, session_id: int, epoch: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in offsets.items()
    ]
    return FetchRequest(
        max_bytes=1 << 20,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
    )


def open_session(client: RawClient, topic: str, partitions: int) -> int:
    request = session_request(topic, dict.fromkeys(range(partitions), 0), session_id=0, epoch=0)
    response = client.request(request, FETCH_VERSION)
    assert response.session_id > 0
    assert len(told(response)) == partitions
    return response.session_id


def id_of(client: RawClient, topic: str) -> UUID:
    (described,) = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    return described.topic_id


def fetch_one(client: RawClient, topic: str, version: int, wanted: FetchPartition) -> FetchResponse:
    request = FetchRequest(
        max_bytes=1000, topics=[FetchTopic(topic=topic, topic_id=id_of(client, topic), partitions=[wanted])]
    )
    return client.request(request, version)


# Sessions


def test_a_session_is_told_what_changed_and_nothing_else(client: RawClient, topic: str) -> None:
    create_topic(client, topic, partitions=3)
    session_id = open_session(client, topic, 3)
    client.request(produce_request(topic, batch_of(b"one"), partition=1))
    answers = told(client.request(session_request(topic, {}, session_id=session_id, epoch=1), FETCH_VERSION))
    assert {number: values_of(answer.records) for number, answer in answers.items()} == {1: [b"one"]}
    answers = told(
        client.request(session_request(topic, {1: 1}, session_id=session_id, epoch=2), FETCH_VERSION)
    )
    assert answers == {}


def test_a_fetch_of_a_session_waits_for_records_of_any_of_its_partitions(
    client: RawClient, address: HostPort, topic: str
) -> None:
    create_topic(client, topic, partitions=3)
    request = session_request(topic, {}, session_id=open_session(client, topic, 3), epoch=1)
    request.max_wait_ms = LONG_MS
    started = time.monotonic()
    waiting = client.send(request, FETCH_VERSION)
    with connected(address) as producer:
        producer.request(produce_request(topic, batch_of(b"late"), partition=2))
    (answer,) = told(client.receive(request, waiting, FETCH_VERSION)).values()
    assert values_of(answer.records) == [b"late"]
    assert time.monotonic() - started < QUICK_SECONDS


def test_a_session_works_on_other_connections_and_its_lost_answers_are_noticed(
    client: RawClient, address: HostPort, topic: str
) -> None:
    create_topic(client, topic)
    session_id = open_session(client, topic, 1)
    following = session_request(topic, {}, session_id=session_id, epoch=1)
    with connected(address) as other:
        assert told(other.request(following, FETCH_VERSION)) == {}
    refused = client.request(following, FETCH_VERSION)
    assert (refused.error_code, refused.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    unknown = session_request(topic, {}, session_id=session_id ^ 1, epoch=1)
    assert client.request(unknown, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    by_id = session_request(topic, {}, session_id=session_id, epoch=2)
    assert client.request(by_id).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_by_id_tells_a_topic_from_its_successor_of_the_same_name(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    first_id = id_of(client, topic)
    wanted = [FetchPartition(partition=0, partition_max_bytes=1000)]
    request = FetchRequest(
        max_bytes=1000, session_epoch=0, topics=[FetchTopic(topic_id=first_id, partitions=wanted)]
    )
    session_id = client.request(request).session_id
    client.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=LONG_MS))
    create_topic(client, topic)
    produce(client, topic, batch_of(b"of the second"))
    following = session_request(topic, {}, session_id=session_id, epoch=1)
    (answer,) = told(client.request(following)).values()
    assert answer.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert not answer.records


# Limits


@pytest.mark.parametrize("max_bytes", [1, 700])
@pytest.mark.parametrize("in_session", [True, False], ids=["session", "no_session"])
def test_small_limits_let_every_one_of_100_partitions_advance(
    client: RawClient, topic: str, max_bytes: int, in_session: bool
) -> None:
    create_topic(client, topic, partitions=100)
    for number in range(100):
        records = b"".join(bytes(batch_of(b"x" * 200)) for _ in range(3))
        client.request(produce_request(topic, records, partition=number))
    offsets = dict.fromkeys(range(100), 0)
    changed: Sequence[int] = range(100)
    session_id, epoch = 0, 0 if in_session else -1
    for _ in range(100):
        named = {number: offsets[number] for number in changed}
        request = session_request(topic, named, session_id=session_id, epoch=epoch)
        request.max_bytes = max_bytes
        response = client.request(request, FETCH_VERSION)
        session_id = response.session_id
        served = {number: answer for number, answer in told(response).items() if answer.records}
        for number, answer in served.items():
            offsets[number] += len(values_of(answer.records))
        changed = list(served)
        epoch += in_session
        changed = changed if in_session else range(100)
    assert min(offsets.values()) >= 1


@pytest.mark.parametrize(("in_order", "served"), [(False, [0, 1, 0, 1]), (True, [0, 0, 0, 0])])
def test_who_is_named_first_gets_the_first_bytes_where_the_client_says_that_its_order_counts(
    client: RawClient, topic: str, in_order: bool, served: list[int]
) -> None:
    """Of others whoever got nothing comes next: they name the same partitions again and again."""
    create_topic(client, topic, partitions=2)
    for number in range(2):
        client.request(produce_request(topic, batch_of(b"x" * 200) * 4, partition=number))
    request = fetch_request(topic, 0, 0, max_bytes=1)
    request.in_order = in_order
    answers = [told(client.request(request, FETCH_VERSION)) for _ in served]
    assert [[number for number, each in answer.items() if each.records] for answer in answers] == [
        [number] for number in served
    ]


def test_a_partition_of_an_unknown_topic_does_not_end_the_wait_for_others(
    client: RawClient, address: HostPort, topic: str
) -> None:
    create_topic(client, topic)
    request = fetch_request(topic, 0, max_wait_ms=LONG_MS)
    request.topics += fetch_request(f"{topic}-absent", 0).topics
    waiting = client.send(request, FETCH_VERSION)
    with connected(address) as producer:
        produce(producer, topic, batch_of(b"late"))
    known, absent = client.receive(request, waiting, FETCH_VERSION).responses
    assert values_of(known.partitions[0].records) == [b"late"]
    assert absent.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Leaders and histories


@pytest.mark.parametrize("version", range(9, FetchRequest.max_version + 1))
def test_a_client_of_another_leader_epoch_is_told_so(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    newer = FetchPartition(current_leader_epoch=9, partition_max_bytes=100)
    answer = told(fetch_one(client, topic, version, newer))[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(12, FetchRequest.max_version + 1))
def test_a_client_with_another_history_is_told_where_it_parts(
    client: RawClient, topic: str, version: int
) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"one", b"two"))
    same = FetchPartition(fetch_offset=1, last_fetched_epoch=0, partition_max_bytes=1000)
    answer = told(fetch_one(client, topic, version, same))[0]
    assert (answer.diverging_epoch.epoch, values_of(answer.records)) == (-1, [b"one", b"two"])
    longer = FetchPartition(fetch_offset=9, last_fetched_epoch=0, partition_max_bytes=1000)
    answer = told(fetch_one(client, topic, version, longer))[0]
    assert (answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 0, 2)
    assert not answer.records
    unknown = FetchPartition(fetch_offset=1, last_fetched_epoch=7, partition_max_bytes=1000)
    assert told(fetch_one(client, topic, version, unknown))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_whoever_asks_the_wrong_node_is_told_who_leads_and_where(cluster: ClusterFactory, topic: str) -> None:
    running = cluster(brokers=2)
    with connected(running.bootstrap[0]) as first, connected(running.bootstrap[1]) as second:
        create_topic(first, topic)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        leader = first.request(asked).topics[0].partitions[0].leader_id
        wrong = second if leader == 1 else first
        until(lambda: wrong.request(asked).topics[0].error_code == 0)
        for version, has_endpoints in ((FETCH_VERSION, False), (FetchRequest.max_version, True)):
            response = fetch_one(wrong, topic, version, FetchPartition(partition_max_bytes=100))
            answer = told(response)[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (leader, 0)
            endpoints = [(endpoint.node_id, endpoint.port) for endpoint in response.node_endpoints]
            assert endpoints == [(leader, running.bootstrap[leader - 1].port)] * has_endpoints


# Clients that know only message sets


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", range(4))
def test_an_old_client_reads_a_log_of_any_codec_to_its_end(
    client: RawClient, topic: str, version: int, codec: Codec
) -> None:
    create_topic(client, topic)
    sent = [b"%d" % number * 50 for number in range(30)]
    for start in range(0, 30, 3):
        produce(client, topic, batch_of(*sent[start : start + 3], codec=codec))
    received: list[bytes | None] = []
    while len(received) < 30:
        wanted = FetchPartition(fetch_offset=len(received), partition_max_bytes=1000)
        request = FetchRequest(max_bytes=5000, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        answer = told(client.request(request, version))[0]
        assert len(answer.records or b"") <= 1000
        came = [
            record.value
            for record in read_all(answer.records or b"", size_max=1 << 20)
            if record.offset >= len(received)
        ]
        assert came
        received += came
    assert received == sent


@pytest.mark.parametrize("version", [1, 3, 9])
def test_zstd_is_refused_to_clients_that_cannot_know_it(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic, compression_type="zstd")
    produce(client, topic, batch_of(b"one", codec=Codec.ZSTD))
    answer = told(client.request(fetch_request(topic, 0), version))[0]
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert not answer.records
