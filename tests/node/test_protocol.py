"""What a node answers on the wire, to requests that a client library would not always send."""

from __future__ import annotations

import socket
import time
from uuid import UUID

import pytest

from broker.errors import ErrorCode
from broker.records.batch import HEADER_SIZE, Codec, iterate_batches, read_header
from broker.records.builder import BatchBuilder
from broker.records.legacy import from_batches
from broker.types import HostPort
from broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from broker.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.node.raw_client import (
    FETCH_VERSION,
    NOW_MS,
    RawClient,
    batch_of,
    connected,
    create_topic,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values_of,
)

LONG_MS = 20_000
QUICK_SECONDS = 10


# ApiVersions


def test_api_versions_newer_than_known_is_answered_in_the_oldest_layout(client: RawClient) -> None:
    client.socket.sendall(bytes.fromhex("0000001000127fff000000070004") + b"test" + bytes(2))
    frame = client.receive_frame()
    assert frame[:4] == bytes.fromhex("00000007")
    response = ApiVersionsResponse.decode(frame, 0, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {api.api_key for api in response.api_keys} >= {0, 1, 3, 18}


@pytest.mark.parametrize("version", range(ApiVersionsRequest.max_version + 1))
def test_api_versions_advertises_produce_and_fetch_from_their_first_version(
    client: RawClient, version: int
) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = client.request(request, version)
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert ranges[0] == (0, 12)
    assert ranges[1] == (0, 17)


def test_a_client_with_an_unprintable_name_is_refused(client: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="a b\n", client_software_version="1")
    assert client.request(request).error_code == ErrorCode.INVALID_REQUEST


# Metadata


def test_first_use_of_a_topic_creates_it_with_a_leader(client: RawClient, topic: str) -> None:
    (described,) = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    assert described.error_code == 0
    assert described.topic_id != UUID(int=0)
    assert [partition.leader_id for partition in described.partitions] == [1]


def test_a_topic_is_not_created_when_the_client_says_so(client: RawClient, topic: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (described,) = client.request(request).topics
    assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_with_an_impossible_name_is_refused(client: RawClient) -> None:
    (described,) = client.request(MetadataRequest(topics=[MetadataRequestTopic(name="no/such")])).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(MetadataRequest.max_version + 1))
def test_every_version_of_metadata_lists_the_topics(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = client.request(request, version)
    assert topic in [described.name for described in response.topics]
    assert [broker.node_id for broker in response.brokers] == [1]


# Produce and fetch


@pytest.mark.parametrize("version", range(3, ProduceRequest.max_version + 1))
def test_what_every_version_produces_is_fetched_again(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    answer = produce(client, topic, batch_of(b"one", b"two"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    answer = produce(client, topic, batch_of(b"three"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert values_of(fetch(client, topic, 0).records) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("version", range(4, FETCH_VERSION + 1))
def test_every_version_of_fetch_gets_whole_batches(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"one", b"two"))
    fetched = fetch(client, topic, 1, version=version)
    assert (fetched.error_code, fetched.high_watermark) == (0, 2)
    assert values_of(fetched.records) == [b"one", b"two"]


@pytest.mark.parametrize("version", range(13, FetchRequest.max_version + 1))
def test_newer_versions_of_fetch_name_topics_by_id(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"one"))
    (described,) = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    for topic_id, code in ((described.topic_id, 0), (UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID)):
        request = FetchRequest(max_bytes=1000, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])])
        fetched = client.request(request, version).responses[0].partitions[0]
        assert fetched.error_code == code
        assert values_of(fetched.records) == ([] if code else [b"one"])


@pytest.mark.parametrize(("compression_type", "codec"), [("gzip", Codec.GZIP), ("uncompressed", Codec.NONE)])
def test_batches_are_stored_with_the_codec_that_their_topic_asks_for(
    client: RawClient, topic: str, compression_type: str, codec: Codec
) -> None:
    create_topic(client, topic, compression_type=compression_type)
    for sent in (Codec.SNAPPY, Codec.NONE, Codec.GZIP):
        batch = batch_of(b"one" * 100, b"two", codec=sent)
        assert produce(client, topic, batch).error_code == 0
    records = fetch(client, topic, 0).records
    assert [header.codec for _, header in iterate_batches(records or b"")] == [codec] * 3
    assert values_of(records) == [b"one" * 100, b"two"] * 3


def test_a_damaged_batch_is_refused_before_it_is_given_another_codec(client: RawClient, topic: str) -> None:
    create_topic(client, topic, compression_type="zstd")
    whole = batch_of(b"one")
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    for records in (damaged, whole + whole[:-1]):
        assert produce(client, topic, records).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(client, topic, 0).high_watermark == 0


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_clients_get_their_own_format(client: RawClient, topic: str, version: int, magic: int) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"one", b"two"))
    fetched = fetch(client, topic, 0, version=version)
    assert fetched.records is not None
    assert fetched.records[16] == magic
    assert values_of(fetched.records) == [b"one", b"two"]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_message_sets_of_old_producers_are_stored_as_batches(
    client: RawClient, topic: str, version: int
) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"one", b"two"))
    message_set = bytes(fetch(client, topic, 0, version=1 if version < 2 else 2).records or b"")
    answer = produce(client, topic, message_set, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 2)
    fetched = fetch(client, topic, 2)
    assert read_header(fetched.records or b"").magic == 2
    assert values_of(fetched.records) == [b"one", b"two"]


def test_a_fetch_outside_the_log_says_so(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    for offset in (-1, 1):
        assert fetch(client, topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_of_a_topic_that_is_not_there_says_so(client: RawClient, topic: str) -> None:
    assert fetch(client, topic, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_gets_at_least_one_batch_over_its_limits(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"x" * 5000))
    request = fetch_request(topic, 0, max_bytes=10)
    fetched = client.request(request, FETCH_VERSION).responses[0].partitions[0]
    assert values_of(fetched.records) == [b"x" * 5000]


@pytest.mark.parametrize("max_bytes", [5000, 8000], ids=["used_up", "leaving_a_rest"])
def test_a_byte_limit_starves_no_partition(client: RawClient, topic: str, max_bytes: int) -> None:
    create_topic(client, topic, partitions=3)
    for partition in range(3):
        client.request(produce_request(topic, batch_of(b"x" * 5000), partition=partition))
    request = fetch_request(topic, 0, 0, 0, max_bytes=max_bytes)
    served = set()
    for _ in range(3):
        answers = client.request(request, FETCH_VERSION).responses[0].partitions
        served |= {answer.partition_index for answer in answers if answer.records}
    assert served == {0, 1, 2}


def test_a_fetch_at_the_end_waits_for_a_record(client: RawClient, address: HostPort, topic: str) -> None:
    create_topic(client, topic)
    request = fetch_request(topic, 0, max_wait_ms=LONG_MS)
    started = time.monotonic()
    waiting = client.send(request, FETCH_VERSION)
    with connected(address) as producer:
        produce(producer, topic, batch_of(b"late"))
    fetched = client.receive(request, waiting, FETCH_VERSION).responses[0].partitions[0]
    assert values_of(fetched.records) == [b"late"]
    assert time.monotonic() - started < QUICK_SECONDS


def test_a_fetch_waits_for_its_smallest_size(client: RawClient, address: HostPort, topic: str) -> None:
    create_topic(client, topic)
    request = fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=3000)
    waiting = client.send(request, FETCH_VERSION)
    with connected(address) as producer:
        for _ in range(3):
            produce(producer, topic, batch_of(b"x" * 1000))
    fetched = client.receive(request, waiting, FETCH_VERSION).responses[0].partitions[0]
    assert len(values_of(fetched.records)) == 3


def test_a_fetch_does_not_wait_for_what_its_limit_would_not_let_through(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    for _ in range(3):
        produce(client, topic, batch_of(b"x" * 1000))
    request = fetch_request(topic, 0, max_wait_ms=LONG_MS, min_bytes=2500, max_bytes=2500)
    request.max_bytes = 1 << 20  # of all partitions; the one asked for may come to 2500
    started = time.monotonic()
    fetched = client.request(request, FETCH_VERSION).responses[0].partitions[0]
    assert len(values_of(fetched.records)) == 2
    assert time.monotonic() - started < QUICK_SECONDS


def test_a_fetch_that_waits_in_vain_is_answered_empty(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    fetched = client.request(fetch_request(topic, 0, max_wait_ms=50), FETCH_VERSION)
    assert not fetched.responses[0].partitions[0].records


def test_pipelined_requests_are_answered_in_order_behind_one_that_waits(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    poll = fetch_request(topic, 0, max_wait_ms=100)
    first = client.send(poll, FETCH_VERSION)
    later = [client.send(produce_request(topic, batch_of(b"%d" % number))) for number in range(20)]
    client.receive(poll, first, FETCH_VERSION)
    offsets = [
        client.receive(produce_request(topic, b""), number).responses[0].partition_responses[0].base_offset
        for number in later
    ]
    assert offsets == list(range(20))


def test_a_produce_without_acks_gets_no_answer(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    client.send(produce_request(topic, batch_of(b"quiet"), acks=0))
    assert produce(client, topic, batch_of(b"loud")).base_offset == 1


def test_a_failed_produce_without_acks_closes_the_connection(client: RawClient, topic: str) -> None:
    client.send(produce_request(topic, batch_of(b"lost"), acks=0))
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_strange_acks_are_refused(client: RawClient, topic: str, acks: int) -> None:
    create_topic(client, topic)
    response = client.request(produce_request(topic, batch_of(b"x"), acks=acks))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_several_batches_of_one_partition_are_taken_in_one_request(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    assert produce(client, topic, batch_of(b"one") + batch_of(b"two", b"three")).base_offset == 0
    assert values_of(fetch(client, topic, 0).records) == [b"one", b"two", b"three"]


def test_each_partition_of_a_produce_succeeds_or_fails_by_itself(client: RawClient, topic: str) -> None:
    create_topic(client, topic, partitions=2)
    data = [
        PartitionProduceData(index=0, records=batch_of(b"zero")),
        PartitionProduceData(index=1, records=batch_of(b"one")[:-1]),
        PartitionProduceData(index=2, records=batch_of(b"two")),
    ]
    request = ProduceRequest(
        acks=1, timeout_ms=LONG_MS, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    answers = client.request(request).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# Records that are refused


def test_a_damaged_batch_is_refused_and_nothing_of_it_stored(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    damaged = batch_of(b"damaged")
    damaged[-3] ^= 1
    assert produce(client, topic, damaged).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetch(client, topic, 0).high_watermark == 0


def test_a_batch_over_the_limit_is_refused(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    assert produce(client, topic, batch_of(b"x" * 100_001)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_limit_of_the_topic_holds_too(client: RawClient, topic: str) -> None:
    create_topic(client, topic, max_message_bytes="1000")
    assert produce(client, topic, batch_of(b"x" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, topic, batch_of(b"x" * 800)).error_code == ErrorCode.NONE


def test_a_small_message_of_an_old_producer_is_held_to_its_topics_settings(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic, cleanup_policy="compact", compression_type="gzip")
    builder = BatchBuilder(size_max=1 << 20)
    builder.append(NOW_MS, None, b"x")
    keyless = from_batches(builder.build(), 0, size_max=1 << 20)
    keyed = from_batches(batch_of(b"x"), 0, size_max=1 << 20)
    assert len(keyed) < HEADER_SIZE
    assert produce(client, topic, keyless, version=0).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, topic, keyed, version=0).error_code == 0
    assert read_header(fetch(client, topic, 0).records or b"").codec is Codec.GZIP


def test_a_transactional_batch_behind_a_plain_one_is_refused_without_a_transactional_id(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    builder = BatchBuilder(
        size_max=1 << 20, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    builder.append(NOW_MS, b"key", b"two")
    records = batch_of(b"one") + builder.build()
    assert produce(client, topic, records).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_record_without_key_is_refused_on_a_compacted_topic(client: RawClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    builder = BatchBuilder(Codec.SNAPPY, size_max=1 << 20)
    builder.append(NOW_MS, b"key", b"good")
    builder.append(NOW_MS, None, b"bad")
    answer = produce(client, topic, builder.build())
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [problem.batch_index for problem in answer.record_errors] == [1]
    assert produce(client, topic, batch_of(b"keyed")).error_code == ErrorCode.NONE


def test_zstd_needs_a_client_that_knows_it(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    builder = BatchBuilder(Codec.ZSTD, size_max=1 << 20)
    builder.append(NOW_MS, None, b"x")
    batch = builder.build()
    refused = produce(client, topic, batch, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, batch, version=7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("records", [b"", b"short", bytes(200)])
def test_bytes_that_are_no_batch_are_refused(client: RawClient, topic: str, records: bytes) -> None:
    create_topic(client, topic)
    code = produce(client, topic, records).error_code
    assert code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


# Idempotent producers


def test_a_repeated_batch_is_answered_with_its_first_offset_and_stored_once(
    client: RawClient, topic: str
) -> None:
    create_topic(client, topic)
    producer_id = client.request(InitProducerIdRequest(transactional_id=None)).producer_id
    batches = [
        batch_of(b"%d" % number, producer_id=producer_id, epoch=0, sequence=number) for number in range(7)
    ]
    assert [produce(client, topic, batch).base_offset for batch in batches] == list(range(7))
    for number in range(2, 7):
        repeated = produce(client, topic, batches[number])
        assert (repeated.error_code, repeated.base_offset) == (0, number)
    assert fetch(client, topic, 0).high_watermark == 7


def test_a_gap_in_the_sequence_is_refused(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    producer_id = client.request(InitProducerIdRequest(transactional_id=None)).producer_id
    produce(client, topic, batch_of(b"0", producer_id=producer_id, epoch=0, sequence=0))
    gap = produce(client, topic, batch_of(b"2", producer_id=producer_id, epoch=0, sequence=2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_ids_differ(client: RawClient) -> None:
    ids = [client.request(InitProducerIdRequest(transactional_id=None)).producer_id for _ in range(50)]
    assert len(set(ids)) == 50


# Offsets


def list_offset(client: RawClient, topic: str, timestamp: int, version: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    answer = client.request(request, version).topics[0].partitions[0]
    assert answer.error_code == 0
    return (answer.old_style_offsets[0], -1) if version == 0 else (answer.offset, answer.timestamp)


@pytest.mark.parametrize("version", range(ListOffsetsRequest.max_version + 1))
def test_offsets_are_found_at_either_end_and_by_time(client: RawClient, topic: str, version: int) -> None:
    create_topic(client, topic)
    builder = BatchBuilder(size_max=1 << 20)
    for number in range(10):
        builder.append(NOW_MS + number * 10, None, b"x")
    produce(client, topic, builder.build())
    assert list_offset(client, topic, -2, version)[0] == 0
    assert list_offset(client, topic, -1, version)[0] == 10
    if version > 0:
        assert list_offset(client, topic, NOW_MS + 41, version) == (5, NOW_MS + 50)
        assert list_offset(client, topic, NOW_MS + 1000, version) == (-1, -1)
        assert list_offset(client, topic, -3, version) == (9, NOW_MS + 90)


def test_the_end_of_an_epoch_is_told(client: RawClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"x", b"y"))
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    answer = client.request(request).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 2)
    wanted.current_leader_epoch = 9
    answer = client.request(request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# Coordinators


def test_several_coordinators_are_found_at_once(client: RawClient, address: HostPort) -> None:
    found = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]))
    assert [(c.key, c.error_code, c.node_id, c.port) for c in found.coordinators] == [
        ("a", 0, 1, address.port),
        ("b", 0, 1, address.port),
    ]
    single = client.request(FindCoordinatorRequest(key="a"), 0)
    assert (single.error_code, single.node_id) == (0, 1)


def test_a_client_that_leaves_during_a_long_poll_disturbs_nobody(
    client: RawClient, address: HostPort, topic: str
) -> None:
    create_topic(client, topic)
    for _ in range(20):
        with connected(address) as leaver:
            leaver.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), FETCH_VERSION)
            leaver.socket.shutdown(socket.SHUT_RDWR)
    assert produce(client, topic, batch_of(b"still here")).error_code == 0
