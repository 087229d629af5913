"""Records passed on to the leaders of their partitions, for clients that reach one node only: those behind a
balancer that knows nothing of the protocol.

Only clients that ask for it have that (`ProduceRequest.forward`; ApiVersions says whether a node does it):
all others are told who does not lead, and go to who does. What a leader answers is relayed as it is. Requests
between nodes never ask, so nothing is passed on twice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.cluster.image import BrokerInfo
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.server.cluster_view import ClusterView
from broker.types import BrokerId, TopicPartition
from broker.wire.message import Request, ResponseType
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_ACKS_OF_LEADER = 1
"""What stands for none at all between nodes, where every request is answered."""


class Link(Protocol):
    """The way to other nodes."""

    async def send(self, broker: BrokerInfo, request: Request[ResponseType]) -> ResponseType:
        """Raises ConnectionFailedError, RequestTimedOutError, ProtocolError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A request by who appends what."""

    own: Sequence[TopicProduceData]
    """For this node, with all that nobody is known to lead."""
    others: Mapping[BrokerId, Sequence[TopicProduceData]]


class ProduceForwarding:
    """Passes on what one node receives; over a link of its own, as appends may take their time."""

    def __init__(self, own_id: BrokerId, view: ClusterView, link: Link) -> None:
        self._own_id = own_id
        self._view = view
        self._link = link

    def divide(self, request: ProduceRequest, allowed: Sequence[str]) -> Parts:
        """The request by leaders; topics that are not `allowed` are for this node to refuse."""
        divided: dict[BrokerId, dict[str, list[PartitionProduceData]]] = defaultdict(dict)
        for topic in request.topic_data:
            for data in topic.partition_data:
                leader = self._leader(topic.name, data.index) if topic.name in allowed else self._own_id
                # The records are taken out of the request, which is used again for the next one.
                kept = PartitionProduceData(index=data.index, records=data.records)
                divided[leader].setdefault(topic.name, []).append(kept)
        topics = {
            leader: [TopicProduceData(name=name, partition_data=data) for name, data in by_name.items()]
            for leader, by_name in divided.items()
        }
        return Parts(own=topics.pop(self._own_id, ()), others=topics)

    async def send(self, parts: Parts, request: ProduceRequest) -> list[TopicProduceResponse]:
        """Every other leader's answer; where there is none, an error that has the client try again."""
        answers = await asyncio.gather(
            *(self._send(leader, topics, request) for leader, topics in parts.others.items())
        )
        return [topic for answer in answers for topic in answer]

    async def _send(
        self, leader: BrokerId, topics: Sequence[TopicProduceData], request: ProduceRequest
    ) -> Sequence[TopicProduceResponse]:
        broker = self._view.image.brokers.get(leader)
        passed_on = ProduceRequest(
            acks=request.acks or _ACKS_OF_LEADER, timeout_ms=request.timeout_ms, topic_data=list(topics)
        )
        try:
            if broker is None:
                raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE)
            response: ProduceResponse = await self._link.send(broker, passed_on)
        except BrokerError as error:
            return _refused(topics, _told(error))
        return response.responses

    def _leader(self, topic: str, partition: int) -> BrokerId:
        """Who is to append: this node as well where it is unknown who else."""
        image = self._view.image
        found = image.partition(TopicPartition(topic, partition))
        return self._own_id if found is None or found.leader not in image.brokers else found.leader


def merged(own: ProduceResponse | None, others: Sequence[TopicProduceResponse]) -> ProduceResponse:
    """One answer, every topic once."""
    partitions: dict[str, list[PartitionProduceResponse]] = defaultdict(list)
    for topic in [*(own.responses if own is not None else ()), *others]:
        partitions[topic.name] += topic.partition_responses
    return ProduceResponse(
        responses=[
            TopicProduceResponse(name=name, partition_responses=answers)
            for name, answers in partitions.items()
        ]
    )


def _told(error: BrokerError) -> ProtocolError:
    """Without an answer it is unknown whether the leader appended."""
    if isinstance(error, ProtocolError):
        return error
    code = {
        ConnectionFailedError: ErrorCode.NETWORK_EXCEPTION,
        RequestTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    }.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
    return ProtocolError(code, str(error))


def _refused(topics: Sequence[TopicProduceData], error: ProtocolError) -> list[TopicProduceResponse]:
    return [
        TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                PartitionProduceResponse(
                    index=data.index, error_code=error.code, base_offset=-1, error_message=error.message
                )
                for data in topic.partition_data
            ],
        )
        for topic in topics
    ]
