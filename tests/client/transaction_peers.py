"""A node that leads partitions and coordinates transactions of the first protocol, in a few lines."""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import ErrorCode
from broker.records.batch import read_header
from broker.types import Buffer, TopicPartition
from broker.wire.message import Message
from broker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from broker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.leaders import ProducingPeer


class CoordinatingPeer(ProducingPeer):
    """Knows one transactional id. `story` tells what was asked of it that had an effect."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = -1
        self.partitions: set[TopicPartition] = set()
        self.story: list[str] = []
        self.refusals: Callable[[type[Message]], ErrorCode] = lambda request: ErrorCode.NONE
        self.refuse_partition: Callable[[TopicPartition], ErrorCode] = lambda partition: ErrorCode.NONE
        self.trouble = self._verify
        self.on(InitProducerIdRequest, self._init)
        self.on(AddPartitionsToTxnRequest, self._add)
        self.on(AddOffsetsToTxnRequest, self._add_offsets)
        self.on(TxnOffsetCommitRequest, self._commit_offsets)
        self.on(EndTxnRequest, self.end)

    def _verify(self, partition: TopicPartition, batch: Buffer) -> ErrorCode:
        header = read_header(batch)
        assert header.is_transactional
        if partition not in self.partitions:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE if header.producer_epoch == self.epoch else ErrorCode.INVALID_PRODUCER_EPOCH

    def _init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        code = self.refusals(InitProducerIdRequest)
        if code is ErrorCode.NONE and request.producer_id >= 0 and request.producer_epoch != self.epoch:
            code = ErrorCode.PRODUCER_FENCED
        if code:
            return InitProducerIdResponse(error_code=code)
        self.epoch += 1
        self.partitions.clear()
        self.story.append(f"epoch {self.epoch}")
        return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)

    def _code(self, request: type[Message], epoch: int) -> ErrorCode:
        code = self.refusals(request)
        return ErrorCode.INVALID_PRODUCER_EPOCH if not code and epoch != self.epoch else code

    def _add(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        code = self._code(AddPartitionsToTxnRequest, request.v3_and_below_producer_epoch)
        asked = [
            TopicPartition(topic.name, number)
            for topic in request.v3_and_below_topics
            for number in topic.partitions
        ]
        codes = {partition: code or self.refuse_partition(partition) for partition in asked}
        if any(codes.values()):
            codes = {key: value or ErrorCode.OPERATION_NOT_ATTEMPTED for key, value in codes.items()}
        else:
            self.partitions.update(asked)
            self.story.append(f"add {' '.join(map(str, sorted(asked)))}")
        results = [
            AddPartitionsToTxnTopicResult(
                name=partition.topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition.partition, partition_error_code=answer
                    )
                ],
            )
            for partition, answer in codes.items()
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        code = self._code(AddOffsetsToTxnRequest, request.producer_epoch)
        if not code:
            self.story.append(f"add {request.group_id}")
        return AddOffsetsToTxnResponse(error_code=code)

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        code = self._code(TxnOffsetCommitRequest, request.producer_epoch)
        topics = []
        for topic in request.topics:
            told = [
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ]
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=told))
            if not code:
                self.story += [
                    f"{request.group_id} at {partition.committed_offset}" for partition in topic.partitions
                ]
        return TxnOffsetCommitResponse(topics=topics)

    def end(self, request: EndTxnRequest) -> EndTxnResponse:
        """Commit or abort."""
        code = self._code(EndTxnRequest, request.producer_epoch)
        if not code:
            self.partitions.clear()
            self.story.append("commit" if request.committed else "abort")
        return EndTxnResponse(error_code=code)
