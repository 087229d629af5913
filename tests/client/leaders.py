"""A leader's side of producing, in a few lines: what it appends and refuses by sequence numbers (KIP-98)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.errors import ErrorCode
from broker.records.batch import MAGIC_POSITION, next_sequence, read_header
from broker.records.reader import read_all
from broker.types import Buffer, TopicPartition
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.peers import Peer

REMEMBERED = 5
SIZE_MAX = 1 << 24


class Leader:
    """The log of one partition and what its leader knows of producers."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.refuses_strangers = False
        """As old leaders do: else any first sequence number of a producer is taken."""
        self._producers: dict[tuple[int, int], deque[tuple[int, int, int]]] = {}

    def append(self, batch: Buffer) -> tuple[ErrorCode, int]:
        """Append one batch or message set, or say why not; and its base offset."""
        if batch[MAGIC_POSITION] == 2 and (header := read_header(batch)).producer_id >= 0:
            code, offset = self._check(
                header.producer_id, header.producer_epoch, header.base_sequence, header.record_count
            )
            if code is not None:
                return code, offset
        offset = len(self.values)
        self.values += [record.value or b"" for record in read_all(batch, size_max=SIZE_MAX)]
        return ErrorCode.NONE, offset

    def forget_producers(self) -> None:
        self._producers.clear()
        self.refuses_strangers = True

    def _check(self, producer_id: int, epoch: int, sequence: int, count: int) -> tuple[ErrorCode | None, int]:
        known = self._producers.setdefault((producer_id, epoch), deque(maxlen=REMEMBERED))
        for first, last, offset in known:
            if first == sequence and last == next_sequence(sequence, count - 1):
                return ErrorCode.NONE, offset
        if known:
            last = known[-1][1]
            if sequence != next_sequence(last, 1):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif sequence != 0 and self.refuses_strangers:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.append((sequence, next_sequence(sequence, count - 1), len(self.values)))
        return None, -1


class ProducingPeer(Peer):
    """A node that leads partitions and appends what is produced to them;

    `trouble` may answer in its place.
    """

    def __init__(self, node_id: int = 1, *, logs: dict[TopicPartition, Leader] | None = None) -> None:
        super().__init__(node_id)
        self.logs: dict[TopicPartition, Leader] = {} if logs is None else logs
        self.producer_ids = 0
        self.trouble: Callable[[TopicPartition, Buffer], ErrorCode] = lambda partition, batch: ErrorCode.NONE
        self.on(InitProducerIdRequest, self._new_producer_id)
        self.on(ProduceRequest, self.produce)

    def log(self, topic: str, partition: int) -> Leader:
        return self.logs.setdefault(TopicPartition(topic, partition), Leader())

    def produce(self, request: ProduceRequest) -> ProduceResponse | None:
        """Append; the answer says what became of each partition."""
        responses = []
        for topic in request.topic_data:
            answers = [self._append(topic.name, data.index, data.records) for data in topic.partition_data]
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=responses) if request.acks else None

    def _append(self, topic: str, index: int, records: Buffer | None) -> PartitionProduceResponse:
        assert records is not None
        offset = -1
        code = self.trouble(TopicPartition(topic, index), records)
        if code is ErrorCode.NONE:
            code, offset = self.log(topic, index).append(records)
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

    def _new_producer_id(self, _request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=100 * self.node_id + self.producer_ids, producer_epoch=0)
