"""DeleteRecords against a real node, and what a crash leaves of it."""

from __future__ import annotations

import pytest

from broker.errors import ErrorCode
from broker.server.internal_topics import CONSUMER_OFFSETS
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conftest import ClusterFactory
from tests.node.raw_client import RawClient, batch_of, connected, create_topic, fetch, produce, values_of


def delete(
    client: RawClient, topic: str, offset: int, *, partition: int = 0, version: int | None = None
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=10_000
    )
    return client.request(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(DeleteRecordsRequest.max_version + 1))
def test_every_version_deletes_up_to_an_offset_or_to_the_high_watermark(
    client: RawClient, topic: str, version: int
) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    for offset, start in ((2, 2), (1, 2), (-1, 3)):
        answer = delete(client, topic, offset, version=version)
        assert (answer.error_code, answer.low_watermark) == (0, start)
    assert fetch(client, topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, 3).log_start_offset == 3


@pytest.mark.parametrize(
    ("offset", "partition", "code"),
    [
        (4, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_there_is_not_deleted(
    client: RawClient, topic: str, offset: int, partition: int, code: ErrorCode
) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of(b"a", b"b", b"c"))
    answer = delete(client, topic, offset, partition=partition)
    assert (answer.error_code, answer.low_watermark) == (code, -1)
    assert values_of(fetch(client, topic, 0).records) == [b"a", b"b", b"c"]


def test_compacted_and_internal_topics_keep_their_records(client: RawClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    produce(client, topic, batch_of(b"a"))
    assert delete(client, topic, 1).error_code == ErrorCode.POLICY_VIOLATION
    assert delete(client, CONSUMER_OFFSETS, 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_deleted_records_do_not_come_back_with_a_crash(cluster: ClusterFactory) -> None:
    running = cluster()
    with connected(running.bootstrap[0]) as client:
        create_topic(client, "flights")
        produce(client, "flights", batch_of(b"a", b"b", b"c"))
        assert delete(client, "flights", 2).low_watermark == 2
    running.kill_node(1)
    running.start_node(1)
    with connected(running.bootstrap[0]) as client:
        assert fetch(client, "flights", 2).log_start_offset == 2
        assert fetch(client, "flights", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
