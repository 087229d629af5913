"""Transactions by hand on one partition: batches and markers that are sent again until they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.records.builder import BatchBuilder
from broker.types import HostPort
from broker.wire.message import Request, ResponseType
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.produce import ProduceRequest
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.chaos.background import Background
from tests.chaos.load import PATIENCE_SECONDS, NotInTimeError, keyed_record
from tests.node.raw_client import RawClient, connected, produce_request
from tests.node.transactions import PRODUCE_VERSION

PRODUCERS = 4
BATCH_RECORDS_MAX = 5
END_PROBABILITY = 0.25
COMMIT_PROBABILITY = 0.6
PAUSE_SECONDS = 0.005
TRANSACTIONAL_ID = "by-hand"
CODECS = (Codec.NONE, Codec.SNAPPY, Codec.ZSTD)
PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""What a node answers that is starting, or stands without ZooKeeper."""


@dataclass(slots=True, kw_only=True)
class _Producer:
    producer_id: int
    sequence: int = 0
    uncommitted: list[tuple[int, int]] = field(default_factory=list)


class Transactions(Background):
    """Producers whose transactions on partition 0 of a topic overlap, within a `with` that ends all of them.

    Nothing is given up: whoever gets no answer asks again on another connection.
    """

    def __init__(self, address: HostPort, topic: str, chance: Random) -> None:
        super().__init__("transactions")
        self.committed: list[tuple[int, int]] = []
        """Offset and number of every record of a committed transaction."""
        self.aborted_count = 0
        self._address = address
        self._topic = topic
        self._chance = Random(chance.random())
        self._number = 0

    def _after(self, *, failed: bool) -> None:
        if not failed:
            assert not self.failures, self.failures
        self.committed.sort()

    def _run(self) -> None:
        try:
            producers = [_Producer(producer_id=self._producer_id()) for _ in range(PRODUCERS)]
            while not self._stopping.wait(PAUSE_SECONDS):
                producer = self._chance.choice(producers)
                if producer.uncommitted and self._chance.random() < END_PROBABILITY:
                    self._end(producer)
                else:
                    self._write(producer)
            for producer in producers:
                self._end(producer)
        except AssertionError as error:
            self.failures.append(str(error))

    def _producer_id(self) -> int:
        answer = self._ask(
            InitProducerIdRequest(transactional_id=None), lambda answer: ErrorCode.of(answer.error_code)
        )
        return answer.producer_id

    def _write(self, producer: _Producer) -> None:
        numbers = range(self._number, self._number + self._chance.randint(1, BATCH_RECORDS_MAX))
        self._number = numbers.stop
        request = produce_request(self._topic, self._batch(producer, numbers))
        request.transactional_id = TRANSACTIONAL_ID
        answer = self._ask(
            request,
            lambda answer: ErrorCode.of(answer.responses[0].partition_responses[0].error_code),
        )
        first = answer.responses[0].partition_responses[0].base_offset
        producer.uncommitted += [(first + index, number) for index, number in enumerate(numbers)]
        producer.sequence += len(numbers)

    def _batch(self, producer: _Producer, numbers: range) -> bytearray:
        builder = BatchBuilder(
            self._chance.choice(CODECS),
            size_max=1 << 20,
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=producer.sequence,
            transactional=True,
        )
        for number in numbers:
            key, value, headers = keyed_record(number)
            encoded = None if value is None else value.encode()
            assert builder.append(
                time.time_ns() // 1_000_000,
                key.encode(),
                encoded,
                [(name, text.encode()) for name, text in headers.items()],
            )
        return builder.build()

    def _end(self, producer: _Producer) -> None:
        commits = self._chance.random() < COMMIT_PROBABILITY
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=0,
            transaction_result=commits,
            topics=[WritableTxnMarkerTopic(name=self._topic, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        self._ask(
            WriteTxnMarkersRequest(markers=[marker]),
            lambda answer: ErrorCode.of(answer.markers[0].topics[0].partitions[0].error_code),
        )
        if commits:
            self.committed += producer.uncommitted
        else:
            self.aborted_count += len(producer.uncommitted)
        producer.uncommitted.clear()

    def _ask(
        self, request: Request[ResponseType], code_of: Callable[[ResponseType], ErrorCode]
    ) -> ResponseType:
        """The answer to a request that was carried out, at the first time or a later one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                with connected(self._address) as client:
                    answer = self._answer(client, request)
            except OSError:
                answer = None
            if answer is not None:
                code = code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                assert code in PASSING, f"{type(request).__name__}: {code.name}"
            time.sleep(0.05)
        raise NotInTimeError(f"{type(request).__name__} was not carried out within {PATIENCE_SECONDS} s")

    def _answer(self, client: RawClient, request: Request[ResponseType]) -> ResponseType | None:
        """None when the node ends before it answers."""
        try:
            return client.request(request, PRODUCE_VERSION if isinstance(request, ProduceRequest) else None)
        except AssertionError:
            return None
