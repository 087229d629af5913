"""A node that serves fetches and offsets from logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.errors import ErrorCode
from broker.records.batch import Codec, read_header, rebase
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from broker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.peers import Peer

LEADER_EPOCH = 3


class Log:
    """Batches of one partition."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.batches: list[bytearray] = []

    def append(self, *values: bytes, codec: Codec = Codec.NONE) -> bytearray:
        """Write one batch; its timestamps are 1000 times its offsets."""
        builder = BatchBuilder(codec, size_max=1 << 24)
        for number, value in enumerate(values):
            builder.append((self.end + number) * 1000, b"k", value)
        return self.append_batch(builder.build())

    def append_batch(self, batch: bytearray) -> bytearray:
        rebase(batch, 0, self.end, LEADER_EPOCH)
        self.end = read_header(batch).next_offset
        self.batches.append(batch)
        return batch

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; at least one."""
        found = b""
        for batch in self.batches:
            if read_header(batch).next_offset > offset:
                if found and len(found) + len(batch) > max_bytes:
                    break
                found += batch
        return found

    def offset_at(self, timestamp: int) -> int:
        if timestamp == -1:
            return self.end
        return self.start if timestamp == -2 else max(self.start, -(-timestamp // 1000))


class ServingPeer(Peer):
    """A node whose partitions can be read.

    `trouble` may give an error in place of an answer about a partition.
    """

    def __init__(self, node_id: int = 1, *, logs: dict[TopicPartition, Log] | None = None) -> None:
        super().__init__(node_id)
        self.logs: dict[TopicPartition, Log] = {} if logs is None else logs
        self.trouble: Callable[[TopicPartition], ErrorCode] = lambda partition: ErrorCode.NONE
        self.on(FetchRequest, self.fetch)
        self.on(ListOffsetsRequest, self.list_offsets)

    def log(self, topic: str = "t", partition: int = 0) -> Log:
        return self.logs.setdefault(TopicPartition(topic, partition), Log())

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Answer at once when there is anything to tell, else after a little while, as a long poll."""
        response = self.fetch_now(request)
        if not any(
            data.records or data.error_code for topic in response.responses for data in topic.partitions
        ):
            await asyncio.sleep(0.01)
            response = self.fetch_now(request)
        return response

    def fetch_now(self, request: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[self._read(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _read(self, topic: str, asked: FetchPartition) -> PartitionData:
        code = self.trouble(TopicPartition(topic, asked.partition))
        log = self.log(topic, asked.partition)
        if code is ErrorCode.NONE and not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b"" if code else log.read(asked.fetch_offset, asked.partition_max_bytes)
        return PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=records,
        )

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=[self._find(topic.name, asked) for asked in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _find(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        code = self.trouble(TopicPartition(topic, asked.partition_index))
        offset = self.log(topic, asked.partition_index).offset_at(asked.timestamp)
        if self.versions[ListOffsetsRequest.api_key][1] == 0:
            return ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=code, old_style_offsets=[offset]
            )
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=code,
            offset=offset,
            timestamp=asked.timestamp,
            leader_epoch=LEADER_EPOCH,
        )
