"""Cases of the APIs that write and read records."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.reader import read_all
from broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from broker.wire.messages.fetch import FetchPartition, FetchTopic, PartitionData
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from broker.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from tests.conformance.scene import (
    MISSING_ID,
    MISSING_PARTITION,
    MISSING_TOPIC,
    NONE,
    RECORDS_SIZE_MAX,
    SHELF_VALUES,
    TIMEOUT_MS,
    Scene,
    batch,
    fetch_partition,
    fetch_request,
    produce_request,
    read_values,
    records_for,
)

CONSUMER = -1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5

# Produce


def _only(response: ProduceResponse) -> PartitionProduceResponse:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


async def produce_appends(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    written: list[bytes] = []
    for values in (SHELF_VALUES, (b"d" * 100,), (b"e" * 20_000,), (b"f",)):
        answer = _only(await scene.ask(produce_request(topic, records_for(version, values)), version))
        assert (answer.error_code, answer.base_offset, answer.index) == (NONE, len(written), 0)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert answer.record_errors == []
        written += values
    assert await scene.values(topic) == written


async def produce_appends_to_many_partitions(scene: Scene, version: int) -> None:
    topic, other = await scene.new_topic(partitions=2), await scene.new_topic()
    request = produce_request(topic, records_for(version))
    request.topic_data += produce_request(other, records_for(version)).topic_data
    request.topic_data[0].partition_data += (
        produce_request(topic, records_for(version), partition=1).topic_data[0].partition_data
    )
    response = await scene.ask(request, version)
    answered = {
        (each.name, partition.index): (partition.error_code, partition.base_offset)
        for each in response.responses
        for partition in each.partition_responses
    }
    assert answered == {(topic, 0): (NONE, 0), (topic, 1): (NONE, 0), (other, 0): (NONE, 0)}


async def produce_stamps_with_the_time_of_append(scene: Scene, version: int) -> None:
    topic = await scene.new_topic(settings={"message.timestamp.type": "LogAppendTime"})
    answer = _only(await scene.ask(produce_request(topic, records_for(version)), version))
    assert answer.error_code == NONE
    assert (answer.log_append_time_ms > 0) == (version >= 2)


async def produce_without_acks_is_not_answered(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    scene.connection.send_and_forget(produce_request(topic, records_for(version), acks=0), version)
    answer = _only(await scene.ask(produce_request(topic, records_for(version), acks=1), version))
    assert (answer.error_code, answer.base_offset) == (NONE, 3)


async def produce_repeats_are_answered_with_their_offset(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    made = await scene.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    records = batch(SHELF_VALUES, producer_id=made.producer_id, base_sequence=0)
    for _ in range(2):
        answer = _only(await scene.ask(produce_request(topic, bytearray(records)), version))
        assert (answer.error_code, answer.base_offset) == (NONE, 0)
    gap = batch(SHELF_VALUES, producer_id=made.producer_id, base_sequence=10)
    answer = _only(await scene.ask(produce_request(topic, gap), version))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await scene.values(topic) == list(SHELF_VALUES)


async def produce_to_an_unknown_topic_is_refused(scene: Scene, version: int) -> None:
    answer = _only(await scene.ask(produce_request(MISSING_TOPIC, records_for(version)), version))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def produce_to_an_unknown_partition_is_refused(scene: Scene, version: int) -> None:
    request = produce_request(scene.place.shelf, records_for(version), partition=MISSING_PARTITION)
    answer = _only(await scene.ask(request, version))
    assert (answer.error_code, answer.index) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, MISSING_PARTITION)


async def produce_of_damaged_records_is_refused(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    records = bytearray(records_for(version))
    records[-1] ^= 0xFF
    answer = _only(await scene.ask(produce_request(topic, records), version))
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    assert await scene.values(topic) == []


async def produce_with_unknown_acks_is_refused(scene: Scene, version: int) -> None:
    request = produce_request(scene.place.shelf, records_for(version), acks=2)
    assert _only(await scene.ask(request, version)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def produce_of_zstd_needs_version_7(scene: Scene, version: int) -> None:
    topic = await scene.new_topic()
    answer = _only(await scene.ask(produce_request(topic, batch(SHELF_VALUES, codec=Codec.ZSTD)), version))
    expected = NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert answer.error_code == expected


async def produce_of_a_too_large_batch_is_refused(scene: Scene, version: int) -> None:
    topic = await scene.new_topic(settings={"max.message.bytes": "200"})
    records = records_for(version, (b"x" * 300,))
    assert _only(await scene.ask(produce_request(topic, records), version)).error_code == (
        ErrorCode.MESSAGE_TOO_LARGE
    )


# Fetch


def _shelf(scene: Scene, *partitions: FetchPartition) -> FetchTopic:
    return FetchTopic(topic=scene.place.shelf, topic_id=scene.place.shelf_id, partitions=list(partitions))


async def _fetch(scene: Scene, version: int, topic: FetchTopic) -> PartitionData:
    response = await scene.ask(fetch_request(topic), version)
    assert (response.error_code, response.session_id) == (NONE, 0)
    (answered,) = response.responses
    if version >= 13:
        assert answered.topic_id == topic.topic_id
    else:
        assert answered.topic == topic.topic
    (partition,) = answered.partitions
    return partition


async def fetch_reads_records(scene: Scene, version: int) -> None:
    partition = await _fetch(scene, version, _shelf(scene, fetch_partition()))
    assert (partition.error_code, partition.high_watermark) == (NONE, 3)
    assert partition.last_stable_offset == (3 if version >= 4 else -1)
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert partition.records is not None
    records = list(read_all(partition.records, size_max=RECORDS_SIZE_MAX))
    assert [record.value for record in records] == list(SHELF_VALUES)
    assert [record.offset for record in records] == [0, 1, 2]
    times = [scene.place.shelf_ms + index if version >= 2 else -1 for index in range(3)]
    assert [record.timestamp for record in records] == times


async def fetch_reads_committed_records(scene: Scene, version: int) -> None:
    request = fetch_request(_shelf(scene, fetch_partition()), isolation_level=1)
    (answered,) = (await scene.ask(request, version)).responses
    (partition,) = answered.partitions
    assert (partition.error_code, partition.last_stable_offset) == (NONE, 3)
    assert partition.aborted_transactions == []
    assert read_values(partition.records) == list(SHELF_VALUES)


async def fetch_at_the_end_is_empty(scene: Scene, version: int) -> None:
    partition = await _fetch(scene, version, _shelf(scene, fetch_partition(3)))
    assert (partition.error_code, partition.high_watermark) == (NONE, 3)
    assert not partition.records


async def fetch_at_the_end_waits_no_longer_than_it_is_told(scene: Scene, version: int) -> None:
    request = fetch_request(_shelf(scene, fetch_partition(3)), max_wait_ms=1)
    (answered,) = (await scene.ask(request, version)).responses
    assert answered.partitions[0].error_code == NONE
    assert not answered.partitions[0].records


async def fetch_out_of_range_is_refused(scene: Scene, version: int) -> None:
    for offset in (4, 1000):
        partition = await _fetch(scene, version, _shelf(scene, fetch_partition(offset)))
        assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not partition.records


async def fetch_of_an_unknown_topic_is_refused(scene: Scene, version: int) -> None:
    topic = FetchTopic(topic=MISSING_TOPIC, topic_id=MISSING_ID, partitions=[fetch_partition()])
    partition = await _fetch(scene, version, topic)
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (partition.error_code, partition.high_watermark) == (expected, -1)


async def fetch_of_an_unknown_partition_is_refused(scene: Scene, version: int) -> None:
    topic = _shelf(scene, fetch_partition(partition=MISSING_PARTITION))
    partition = await _fetch(scene, version, topic)
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.partition_index == MISSING_PARTITION


async def fetch_answers_each_partition_by_itself(scene: Scene, version: int) -> None:
    good, bad = fetch_partition(), fetch_partition(partition=MISSING_PARTITION)
    (answered,) = (await scene.ask(fetch_request(_shelf(scene, bad, good)), version)).responses
    codes = {partition.partition_index: partition.error_code for partition in answered.partitions}
    assert codes == {0: NONE, MISSING_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def fetch_in_another_leader_epoch_is_refused(scene: Scene, version: int) -> None:
    partition = await _fetch(scene, version, _shelf(scene, fetch_partition(leader_epoch=77)))
    assert partition.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def fetch_in_an_unknown_session_is_refused(scene: Scene, version: int) -> None:
    request = fetch_request(_shelf(scene, fetch_partition()), session_id=12345, session_epoch=3)
    response = await scene.ask(request, version)
    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


# ListOffsets


async def _offset_of(
    scene: Scene, version: int, timestamp: int, *, topic: str = "", partition: int = 0, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
    )
    name = topic or scene.place.shelf
    request = ListOffsetsRequest(
        replica_id=CONSUMER, topics=[ListOffsetsTopic(name=name, partitions=[asked])]
    )
    (answered,) = (await scene.ask(request, version)).topics
    assert answered.name == name
    (found,) = answered.partitions
    assert found.partition_index == partition
    return found


async def list_offsets_finds_both_ends(scene: Scene, version: int) -> None:
    for timestamp, offset in ((LATEST, 3), (EARLIEST, 0)):
        found = await _offset_of(scene, version, timestamp)
        assert found.error_code == NONE
        if version == 0:
            assert tuple(found.old_style_offsets) == (offset,)
        else:
            assert (found.offset, found.timestamp) == (offset, -1)
            assert found.leader_epoch == (0 if version >= 4 else -1)


async def list_offsets_finds_a_time(scene: Scene, version: int) -> None:
    found = await _offset_of(scene, version, scene.place.shelf_ms + 1)
    assert (found.error_code, found.offset, found.timestamp) == (NONE, 1, scene.place.shelf_ms + 1)
    late = await _offset_of(scene, version, scene.place.shelf_ms + 1000)
    assert (late.error_code, late.offset, late.timestamp, late.leader_epoch) == (NONE, -1, -1, -1)


async def list_offsets_finds_the_largest_time(scene: Scene, version: int) -> None:
    found = await _offset_of(scene, version, MAX_TIMESTAMP)
    assert (found.error_code, found.offset, found.timestamp) == (NONE, 2, scene.place.shelf_ms + 2)


async def list_offsets_finds_the_local_start(scene: Scene, version: int) -> None:
    found = await _offset_of(scene, version, EARLIEST_LOCAL)
    assert (found.error_code, found.offset, found.timestamp) == (NONE, 0, -1)


async def list_offsets_finds_nothing_in_tiers(scene: Scene, version: int) -> None:
    found = await _offset_of(scene, version, LATEST_TIERED)
    assert (found.error_code, found.offset, found.timestamp) == (NONE, -1, -1)


async def list_offsets_of_the_unknown_is_refused(scene: Scene, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = await _offset_of(scene, version, LATEST, topic=MISSING_TOPIC)
    assert (found.error_code, found.offset) == (unknown, -1)
    found = await _offset_of(scene, version, LATEST, partition=MISSING_PARTITION)
    assert (found.error_code, found.offset) == (unknown, -1)


async def list_offsets_in_another_leader_epoch_is_refused(scene: Scene, version: int) -> None:
    found = await _offset_of(scene, version, LATEST, leader_epoch=77)
    assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# OffsetForLeaderEpoch


async def _end_of(
    scene: Scene, version: int, epoch: int, *, topic: str = "", current_leader_epoch: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(
        partition=0, leader_epoch=epoch, current_leader_epoch=current_leader_epoch
    )
    name = topic or scene.place.shelf
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
    )
    (answered,) = (await scene.ask(request, version)).topics
    (end,) = answered.partitions
    assert (answered.topic, end.partition) == (name, 0)
    return end


async def offset_for_leader_epoch_tells_where_it_ends(scene: Scene, version: int) -> None:
    end = await _end_of(scene, version, 0)
    assert (end.error_code, end.end_offset) == (NONE, 3)
    assert end.leader_epoch == (0 if version >= 1 else -1)


async def offset_for_leader_epoch_knows_no_future(scene: Scene, version: int) -> None:
    end = await _end_of(scene, version, 5)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (NONE, -1, -1)


async def offset_for_leader_epoch_of_the_unknown_is_refused(scene: Scene, version: int) -> None:
    end = await _end_of(scene, version, 0, topic=MISSING_TOPIC)
    assert (end.error_code, end.end_offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def offset_for_leader_epoch_in_another_epoch_is_refused(scene: Scene, version: int) -> None:
    end = await _end_of(scene, version, 0, current_leader_epoch=77)
    assert (end.error_code, end.end_offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)


# DeleteRecords


async def _delete(scene: Scene, version: int, topic: str, offset: int) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    response = await scene.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS), version)
    (answered,) = response.topics
    (result,) = answered.partitions
    assert (answered.name, result.partition_index) == (topic, 0)
    return result


async def delete_records_lets_the_log_start_later(scene: Scene, version: int) -> None:
    topic = await scene.new_topic(count=3)
    result = await _delete(scene, version, topic, 2)
    assert (result.error_code, result.low_watermark) == (NONE, 2)
    assert (await _offset_of(scene, 1, EARLIEST, topic=topic)).offset == 2
    result = await _delete(scene, version, topic, -1)
    assert (result.error_code, result.low_watermark) == (NONE, 3)


async def delete_records_past_the_end_is_refused(scene: Scene, version: int) -> None:
    result = await _delete(scene, version, scene.place.shelf, 4)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def delete_records_of_an_unknown_topic_is_refused(scene: Scene, version: int) -> None:
    result = await _delete(scene, version, MISSING_TOPIC, 0)
    assert (result.error_code, result.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# InitProducerId


async def init_producer_id_gives_a_fresh_id(scene: Scene, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    first, second = await scene.ask(request, version), await scene.ask(request, version)
    assert (first.error_code, first.producer_epoch) == (NONE, 0)
    assert (second.error_code, second.producer_epoch) == (NONE, 0)
    assert 0 <= first.producer_id != second.producer_id >= 0


async def init_producer_id_refuses_an_empty_transactional_id(scene: Scene, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    refused = await scene.ask(request, version)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
