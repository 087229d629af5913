"""Writes records of the mirror's own topics as part of a transaction, under the identity of its data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from broker.client.backoff import Backoff, Retries
from broker.client.cluster import Cluster
from broker.client.partition_leaders import find_leaders
from broker.clock import Clock
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.records.batch import Codec, next_sequence
from broker.records.builder import BatchBuilder
from broker.types import TopicPartition
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from mirrormaker.flow.kept_view import Entry, encode_document
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.remedies import is_success
from mirrormaker.flow.writer import ACKS_ALL, PRODUCE_TIMEOUT_MS, transactional_version

WRITE_TIMEOUT_MS = 10_000
"""How long a write is repeated."""
BATCH_BYTES_MAX = 512 << 10
_PAUSES = Backoff(initial_ms=20.0, max_ms=500.0)


class TransactionWriter:
    """Of one identity; one `write` to a partition at a time."""

    def __init__(self, cluster: Cluster, identity: ProducerIdentity, clock: Clock, *, lane: str) -> None:
        """`lane`: the connections to use."""
        self._clock = clock
        self._cluster = cluster
        self._identity = identity
        self._lane = lane
        self._next_sequences: dict[TopicPartition, int] = defaultdict(int)

    async def write(self, at: TopicPartition, entries: Iterable[Entry]) -> None:
        """Return once all in-sync replicas have them. A batch that may be written is repeated as it is, so
        that it is there once. Raises BrokerError.
        """
        timestamp_ms = self._clock.now_ms()
        builder = self._builder(at)
        for key, value in entries:
            record = timestamp_ms, encode_document(key), None if value is None else encode_document(value)
            if not builder.append(*record):
                await self._send(at, builder)
                builder = self._builder(at)
                builder.append(*record)
        if builder.count:
            await self._send(at, builder)

    def _builder(self, at: TopicPartition) -> BatchBuilder:
        return BatchBuilder(
            Codec.NONE,
            size_max=BATCH_BYTES_MAX,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequences[at],
            transactional=True,
        )

    async def _send(self, at: TopicPartition, builder: BatchBuilder) -> None:
        batch = bytes(builder.build())
        retries = Retries(_PAUSES, timeout_ms=WRITE_TIMEOUT_MS, random=self._cluster.random)
        is_repeat = False
        while True:
            try:
                await self._attempt(at, batch, is_repeat=is_repeat)
                break
            except BrokerError as error:
                await retries.pause(error)
                is_repeat = True
                await self._look_again(at)
        self._next_sequences[at] = next_sequence(self._next_sequences[at], builder.count)

    async def _look_again(self, at: TopicPartition) -> None:
        try:
            await self._cluster.refresh([at.topic])
        except BrokerError:
            return  # the next attempt says what is wrong

    async def _attempt(self, at: TopicPartition, batch: bytes, *, is_repeat: bool) -> None:
        leaders = await find_leaders(self._cluster, [at])
        connection = await self._cluster.connection(leaders[at], self._lane)
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=at.topic, partition_data=[PartitionProduceData(index=at.partition, records=batch)]
                )
            ],
        )
        response = await connection.request(request, transactional_version(connection))
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if not is_success(code, is_repeat=is_repeat):
            raise ProtocolError(code, f"{at} in {self._identity.transactional_id}: {code.meaning}")
