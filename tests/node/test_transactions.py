"""What readers of committed records see of transactions on a real node, and what of them survives."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.records.batch import iterate_batches
from broker.records.reader import read_all
from broker.types import HostPort
from broker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from broker.wire.messages.fetch import PartitionData
from broker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.conftest import ClusterFactory
from tests.node.raw_client import (
    FETCH_VERSION,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch_request,
    produce,
    values_of,
)
from tests.node.transactions import UNVERIFIED, RawTransactions

READ_COMMITTED = 1
LATEST = -1
LONG_MS = 20_000
OK = ErrorCode.NONE


def fetch_committed(
    client: RawClient, topic: str, offset: int, *, version: int = FETCH_VERSION, max_bytes: int = 1 << 20
) -> PartitionData:
    request = fetch_request(topic, offset, max_bytes=max_bytes)
    request.isolation_level = READ_COMMITTED
    return client.request(request, version).responses[0].partitions[0]


def aborted_in(answer: PartitionData) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]


def end_offset(client: RawClient, topic: str, isolation_level: int) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=LATEST)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    return client.request(request, 7).topics[0].partitions[0].offset


def open_transactions(client: RawClient, topic: str) -> dict[int, int]:
    """Where each producer's open transaction begins."""
    asked = TopicRequest(name=topic, partition_indexes=[0])
    (described,) = client.request(DescribeProducersRequest(topics=[asked])).topics[0].partitions
    return {
        producer.producer_id: producer.current_txn_start_offset
        for producer in described.active_producers
        if producer.current_txn_start_offset >= 0
    }


@pytest.mark.parametrize("version", range(4, FETCH_VERSION + 1))
def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(
    client: RawClient, topic: str, version: int
) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"plain"))
    first, second = RawTransactions(client, topic), RawTransactions(client, topic)
    assert (first.write(b"a1", b"a2"), second.write(b"b1"), first.write(b"a3")) == (OK, OK, OK)
    answer = fetch_committed(client, topic, 0, version=version)
    assert values_of(answer.records) == [b"plain"]
    assert (answer.last_stable_offset, answer.high_watermark, aborted_in(answer)) == (1, 5, [])
    assert second.end(commit=True) is OK
    assert fetch_committed(client, topic, 1, version=version).records == b""
    assert first.end(commit=False) is OK
    answer = fetch_committed(client, topic, 0, version=version)
    assert (answer.last_stable_offset, answer.high_watermark) == (7, 7)
    assert aborted_in(answer) == [(first.producer_id, 1)]
    assert values_of(answer.records) == [b"plain", b"a1", b"a2", b"b1", b"a3"]


def test_a_marker_that_comes_late_does_not_end_the_next_transaction(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    producer = RawTransactions(client, topic)
    assert producer.write(b"a") is OK
    refused = producer.end(commit=False, epoch=0, transaction_version=2)
    assert refused is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch_committed(client, topic, 0).last_stable_offset == 0
    assert producer.end(commit=True, epoch=1, transaction_version=2) is OK
    assert producer.end(commit=True, epoch=1, transaction_version=2) is OK, "its answer may have been lost"
    answer = fetch_committed(client, topic, 0)
    assert (answer.last_stable_offset, aborted_in(answer)) == (answer.high_watermark, [])


def test_an_answer_names_the_aborted_transactions_of_its_own_records_only(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic, segment_bytes="1000")
    producer = RawTransactions(client, topic)
    for number in range(20):
        assert producer.write(b"%d" % number * 100) is OK
        assert producer.end(commit=number % 2 == 0) is OK
    for start in range(40):
        answer = fetch_committed(client, topic, start, max_bytes=1)
        expected = [(producer.producer_id, start // 2 * 2)] if start // 2 % 2 else []
        assert aborted_in(answer) == expected


def test_the_latest_offset_of_committed_records_is_the_last_stable_one(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    producer = RawTransactions(client, topic)
    produce(client, topic, batch_of(b"plain"))
    producer.write(b"a")
    assert (end_offset(client, topic, 0), end_offset(client, topic, READ_COMMITTED)) == (2, 1)
    producer.end(commit=True)
    assert (end_offset(client, topic, 0), end_offset(client, topic, READ_COMMITTED)) == (3, 3)


def test_a_marker_wakes_readers_of_committed_records_and_open_records_do_not(
    client: RawClient, address: HostPort, topic: str
) -> None:
    create_topic(client, topic)
    with connected(address) as other:
        producer = RawTransactions(other, topic)
        request = fetch_request(topic, 0, max_wait_ms=LONG_MS)
        request.isolation_level = READ_COMMITTED
        waiting = client.send(request, FETCH_VERSION)
        producer.write(b"one")
        producer.write(b"two")
        producer.end(commit=True)
        answer = client.receive(request, waiting, FETCH_VERSION).responses[0].partitions[0]
    assert values_of(answer.records) == [b"one", b"two"]


def test_transactional_records_need_a_transactional_id_and_stay_in_their_transaction(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    producer = RawTransactions(client, topic)
    without_id = batch_of(b"x", producer_id=producer.producer_id, epoch=0, sequence=0, transactional=True)
    refused = produce(client, topic, without_id)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.write(b"a") is OK
    assert open_transactions(client, topic) == {producer.producer_id: 0}
    outside = batch_of(b"x", producer_id=producer.producer_id, epoch=0, sequence=1)
    assert produce(client, topic, outside).error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.end(commit=False, coordinator_epoch=3) is OK
    assert producer.end(commit=False, coordinator_epoch=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert open_transactions(client, topic) == {}


@pytest.mark.parametrize("is_clean", [True, False])
def test_open_and_aborted_transactions_survive_the_end_of_a_node(
    cluster: ClusterFactory, topic: str, is_clean: bool
) -> None:
    running = cluster(settings={"log.segment.bytes": 1000, **UNVERIFIED})
    with connected(running.bootstrap[0]) as client:
        create_topic(client, topic)
        first, second = RawTransactions(client, topic), RawTransactions(client, topic)
        for _ in range(10):
            assert first.write(b"a" * 200) is OK
            assert first.end(commit=False) is OK
        assert second.write(b"b") is OK
        assert first.write(b"c") is OK
    if is_clean:
        running.stop_node(1)
    else:
        running.kill_node(1)
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        assert open_transactions(client, topic) == {second.producer_id: 20, first.producer_id: 21}
        aborted, offset = [], 0
        while offset < 20:
            answer = fetch_committed(client, topic, offset)
            assert answer.last_stable_offset == 20
            aborted += aborted_in(answer)
            offset = [header.next_offset for _, header in iterate_batches(answer.records or b"")][-1]
        assert sorted(set(aborted)) == [(first.producer_id, number * 2) for number in range(10)]


@pytest.mark.parametrize("version", range(4))
def test_old_clients_get_past_any_number_of_markers(
    client: RawClient, address: HostPort, topic: str, version: int
) -> None:
    create_topic(client, topic)
    writer = RawTransactions(client, topic)
    assert writer.write(b"first") == OK
    for _ in range(40):
        assert writer.end(commit=True) == OK
    request = fetch_request(topic, 1, max_bytes=100)
    (answer,) = client.request(request, version).responses[0].partitions
    assert (answer.error_code, answer.high_watermark, answer.records) == (OK, 41, b"")
    request.max_wait_ms = LONG_MS
    with connected(address) as reader:
        waiting = reader.send(request, version)
        assert writer.write(b"second") == OK
        (answer,) = reader.receive(request, waiting, version).responses[0].partitions
        while not answer.records:  # it asked while the record was there, but not committed
            (answer,) = reader.request(request, version).responses[0].partitions
    found = list(read_all(answer.records or b"", size_max=1000))
    assert [(record.offset, record.value) for record in found] == [(41, b"second")]
