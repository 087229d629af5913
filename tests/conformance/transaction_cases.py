"""Outcomes of the APIs around producers and the markers of their transactions, version by version."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.scene import (
    MISSING_PARTITION,
    MISSING_TOPIC,
    NONE,
    SHELF_VALUES,
    TIMEOUT_MS,
    Scene,
    batch,
    produce_request,
)


async def _new_producer(scene: Scene) -> int:
    made = await scene.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS))
    return made.producer_id


async def _mark(
    scene: Scene,
    version: int,
    topic: str,
    *,
    producer_id: int,
    partition: int = 0,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    commit: bool = False,
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
    )
    response = await scene.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    (answered,) = response.markers
    assert (answered.producer_id, answered.topics[0].name) == (producer_id, topic)
    (result,) = answered.topics[0].partitions
    assert result.partition_index == partition
    return ErrorCode.of(result.error_code)


async def _describe(
    scene: Scene, topic: str, *, partition: int = 0, version: int | None = None
) -> PartitionResponse:
    asked = TopicRequest(name=topic, partition_indexes=[partition])
    response = await scene.ask(DescribeProducersRequest(topics=[asked]), version)
    assert response.topics[0].name == topic
    (described,) = response.topics[0].partitions
    assert described.partition_index == partition
    return described


async def _only_producer(scene: Scene, topic: str, version: int | None = None) -> ProducerState:
    described = await _describe(scene, topic, version=version)
    assert described.error_code == NONE
    (producer,) = described.active_producers
    return producer


# DescribeProducers


async def describe_producers_shows_what_is_remembered(scene: Scene, version: int) -> None:
    topic, producer_id = await scene.new_topic(), await _new_producer(scene)
    assert (await _describe(scene, topic, version=version)).active_producers == []
    await scene.ask(produce_request(topic, batch(SHELF_VALUES, producer_id=producer_id, base_sequence=0)))
    producer = await _only_producer(scene, topic, version)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (producer_id, 0, 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp >= scene.place.shelf_ms


async def describe_producers_of_the_unknown_is_refused(scene: Scene, version: int) -> None:
    for topic, partition in ((MISSING_TOPIC, 0), (scene.place.shelf, MISSING_PARTITION)):
        described = await _describe(scene, topic, partition=partition, version=version)
        assert described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# WriteTxnMarkers


async def write_txn_markers_are_stored_without_a_transaction_too(scene: Scene, version: int) -> None:
    topic, producer_id = await scene.new_topic(count=1), await _new_producer(scene)
    marked = await _mark(
        scene, version, topic, producer_id=producer_id, producer_epoch=3, coordinator_epoch=2, commit=True
    )
    assert marked is NONE
    producer = await _only_producer(scene, topic)
    assert (producer.producer_id, producer.producer_epoch, producer.coordinator_epoch) == (producer_id, 3, 2)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (-1, -1)


async def write_txn_markers_of_the_deposed_are_fenced(scene: Scene, version: int) -> None:
    topic, producer_id = await scene.new_topic(), await _new_producer(scene)

    async def mark(producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
        return await _mark(
            scene,
            version,
            topic,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )

    assert await mark(2, 5) is NONE
    assert await mark(1, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await mark(2, 4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await mark(2, 5) is NONE


async def write_txn_markers_into_the_unknown_is_refused(scene: Scene, version: int) -> None:
    for topic, partition in ((MISSING_TOPIC, 0), (scene.place.shelf, MISSING_PARTITION)):
        refused = await _mark(scene, version, topic, producer_id=1, partition=partition)
        assert refused is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
