"""Transactions by hand: batches, and the markers that a coordinator would write, on raw connections.

No coordinator knows of them, so the nodes that take them must be `UNVERIFIED`.
"""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.wire.messages.init_producer_id import InitProducerIdRequest
from broker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.node.raw_client import RawClient, batch_of, produce_request

TRANSACTIONAL_ID = "by-hand"
UNVERIFIED = {"transaction.partition.verification.enable": False}
"""Settings of nodes that ask no coordinator."""
PRODUCE_VERSION = 11
"""The last one whose transactions do not begin by writing."""


class RawTransactions:
    """A producer that writes to partition 0 of a topic, one transaction after another."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self.producer_id = client.request(InitProducerIdRequest(transactional_id=None)).producer_id
        self.client = client
        self._topic = topic
        self._sequence = 0

    def write(self, *values: bytes) -> ErrorCode:
        """Add one batch to the transaction, or begin one with it."""
        records = batch_of(
            *values, producer_id=self.producer_id, epoch=0, sequence=self._sequence, transactional=True
        )
        request = produce_request(self._topic, records)
        request.transactional_id = TRANSACTIONAL_ID
        answer = self.client.request(request, PRODUCE_VERSION).responses[0].partition_responses[0]
        self._sequence += len(values)
        return ErrorCode.of(answer.error_code)

    def end(
        self, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, transaction_version: int = 0
    ) -> ErrorCode:
        """Have the marker written."""
        marker = WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=self._topic, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        (answered,) = self.client.request(WriteTxnMarkersRequest(markers=[marker])).markers
        return ErrorCode.of(answered.topics[0].partitions[0].error_code)
