"""Writes positions as part of a bucket's transaction, under the identity that its data carries."""

from __future__ import annotations

from collections.abc import Iterable

from broker.client.backoff import Backoff, Retries
from broker.client.cluster import Cluster
from broker.clock import Clock
from broker.errors import BrokerError, ErrorCode, ProtocolError
from broker.records.batch import Codec, next_sequence
from broker.records.builder import BatchBuilder
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from mirrormaker.flow.bucket_transaction import LanePositions
from mirrormaker.flow.kept_view import encode_document
from mirrormaker.flow.positions import POSITIONS_AT, SourceId, value_of
from mirrormaker.flow.producers import ProducerIdentity
from mirrormaker.flow.remedies import SUCCESS_CODES
from mirrormaker.flow.writer import ACKS_ALL, PRODUCE_TIMEOUT_MS, transactional_version

WRITE_TIMEOUT_MS = 10_000
"""How long a write is repeated."""
BATCH_BYTES_MAX = 512 << 10
_PAUSES = Backoff(initial_ms=20.0, max_ms=500.0)


class PositionsWriter:
    """Of one identity; one `write` at a time."""

    def __init__(
        self, cluster: Cluster, identity: ProducerIdentity, clock: Clock, *, route: str, lane: str
    ) -> None:
        """`lane`: the connections to use."""
        self._clock = clock
        self._cluster = cluster
        self._identity = identity
        self._route = route
        self._lane = lane
        self._next_sequence = 0

    async def write(self, positions: Iterable[tuple[SourceId, LanePositions]]) -> None:
        """Return once all in-sync replicas have them. A batch that may be written is repeated as it is, so
        that it is there once. Raises BrokerError.
        """
        timestamp_ms = self._clock.now_ms()
        builder = self._builder()
        for source, lanes in positions:
            key, value = encode_document(source.key()), encode_document(value_of(self._route, lanes))
            if not builder.append(timestamp_ms, key, value):
                await self._send(builder)
                builder = self._builder()
                builder.append(timestamp_ms, key, value)
        await self._send(builder)

    def _builder(self) -> BatchBuilder:
        return BatchBuilder(
            Codec.NONE,
            size_max=BATCH_BYTES_MAX,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            base_sequence=self._next_sequence,
            transactional=True,
        )

    async def _send(self, builder: BatchBuilder) -> None:
        batch = bytes(builder.build())
        retries = Retries(_PAUSES, timeout_ms=WRITE_TIMEOUT_MS, random=self._cluster.random)
        while True:
            try:
                await self._attempt(batch)
                break
            except BrokerError as error:
                await retries.pause(error)
                await self._look_again()
        self._next_sequence = next_sequence(self._next_sequence, builder.count)

    async def _look_again(self) -> None:
        try:
            await self._cluster.refresh([POSITIONS_AT.topic])
        except BrokerError:
            return  # the next attempt says what is wrong

    async def _attempt(self, batch: bytes) -> None:
        leader = self._cluster.leader(POSITIONS_AT)
        if leader is None:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{POSITIONS_AT} has no leader")
        connection = await self._cluster.connection(leader, self._lane)
        data = PartitionProduceData(index=POSITIONS_AT.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=POSITIONS_AT.topic, partition_data=[data])],
        )
        response = await connection.request(request, transactional_version(connection))
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if code not in SUCCESS_CODES:
            raise ProtocolError(code, f"positions of {self._identity.transactional_id}: {code.meaning}")
