"""The leaders of partitions in memory: they take markers, or what a test says instead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.cluster.image import BrokerInfo
from broker.errors import ConnectionFailedError, CoordinationError, ErrorCode
from broker.types import BrokerId, TopicPartition
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class MemoryLeaders:
    """Implements the Leaders port. Partition N of any topic is led by broker N unless `led_by` says more."""

    def __init__(self) -> None:
        self.led_by: dict[TopicPartition, int | None] = {}
        self.gone: set[TopicPartition] = set()
        self.unreachable: set[int] = set()
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        """What a partition answers, one after the other, before it takes its marker."""
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.written: list[tuple[TopicPartition, int, int, bool, int]] = []
        """Partition, producer id and epoch, whether committed, coordinator epoch."""
        self.gate = asyncio.Event()
        self.gate.set()

    def leader(self, partition: TopicPartition) -> BrokerInfo | None:
        if partition in self.gone:
            return None
        number = self.led_by.get(partition, partition.partition)
        return None if number is None else BrokerInfo(id=BrokerId(number), epoch=1, endpoints={})

    async def is_gone(self, partition: TopicPartition) -> bool:
        if self.led_by.get(partition, 0) is None and partition not in self.gone:
            raise CoordinationError("ZooKeeper is away")
        return partition in self.gone

    async def write_markers(
        self, broker: BrokerInfo, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        self.requests.append((broker.id, request))
        await self.gate.wait()
        if broker.id in self.unreachable:
            raise ConnectionFailedError("not there")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=number,
                                    error_code=self._write(
                                        TopicPartition(topic.name, number),
                                        marker.producer_id,
                                        marker.producer_epoch,
                                        marker.transaction_result,
                                        marker.coordinator_epoch,
                                    ),
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def _write(
        self, partition: TopicPartition, producer_id: int, epoch: int, committed: bool, coordinator_epoch: int
    ) -> ErrorCode:
        answers = self.answers.get(partition)
        if answers:
            return answers.pop(0)
        self.written.append((partition, producer_id, epoch, committed, coordinator_epoch))
        return ErrorCode.NONE

    def marked(self) -> set[TopicPartition]:
        return {partition for partition, *_ in self.written}


def partitions(topic: str, numbers: Iterable[int]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)
