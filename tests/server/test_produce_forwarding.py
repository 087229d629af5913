from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from broker.errors import BrokerError, ConnectionFailedError, ErrorCode, ProtocolError, RequestTimedOutError
from broker.server.cluster_view import ClusterView
from broker.server.produce_forwarding import ProduceForwarding, merged
from broker.types import BrokerId, LeaderEpoch, TopicId
from broker.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

OWN, OTHER, DEAD = BrokerId(1), BrokerId(2), BrokerId(3)


class LinkInMemory:
    """Appends at offset 7, or fails."""

    def __init__(self, error: BrokerError | None = None) -> None:
        self.sent: list[tuple[BrokerId, ProduceRequest]] = []
        self._error = error

    async def send(self, broker: BrokerInfo, request: Any) -> Any:
        self.sent.append((broker.id, request))
        if self._error is not None:
            raise self._error
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=data.index, base_offset=7)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )


def forwarding(link: LinkInMemory, **leaders: list[BrokerId]) -> ProduceForwarding:
    """Of node 1 in a cluster where 1 and 2 live."""
    topics = {
        name: TopicImage(
            name=name,
            topic_id=TopicId(UUID(int=1)),
            partitions={
                number: PartitionImage(
                    leader=leader,
                    leader_epoch=LeaderEpoch(0),
                    isr=(leader,),
                    replicas=(leader,),
                    partition_epoch=0,
                    controller_epoch=0,
                )
                for number, leader in enumerate(led)
            },
        )
        for name, led in leaders.items()
    }
    brokers = {number: BrokerInfo(id=number, epoch=1, endpoints={}) for number in (OWN, OTHER)}
    view = ClusterView(ClusterImage(cluster_id="c", brokers=brokers, topics=topics))
    return ProduceForwarding(OWN, view, link)


def request_for(*partitions: tuple[str, int], acks: int = -1) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(PartitionProduceData(index=number, records=b"r"))
    data = [TopicProduceData(name=name, partition_data=each) for name, each in topics.items()]
    return ProduceRequest(acks=acks, timeout_ms=5, topic_data=data, forward=True)


def numbers(topics: Any) -> list[tuple[str, int]]:
    return [(topic.name, data.index) for topic in topics for data in topic.partition_data]


def test_a_request_is_divided_by_leaders_and_what_nobody_leads_is_for_the_node_itself() -> None:
    asked = request_for(("t", 0), ("t", 1), ("t", 2), ("u", 0), ("missing", 0))
    parts = forwarding(LinkInMemory(), t=[OWN, OTHER, DEAD], u=[OTHER]).divide(asked, ["t", "u", "missing"])
    assert numbers(parts.own) == [("t", 0), ("t", 2), ("missing", 0)]
    assert {broker: numbers(topics) for broker, topics in parts.others.items()} == {
        OTHER: [("t", 1), ("u", 0)]
    }


def test_topics_that_the_client_may_not_write_are_not_passed_on() -> None:
    parts = forwarding(LinkInMemory(), t=[OTHER], u=[OTHER]).divide(request_for(("t", 0), ("u", 0)), ["u"])
    assert numbers(parts.own) == [("t", 0)]
    assert numbers(parts.others[OTHER]) == [("u", 0)]


@pytest.mark.parametrize(("acks", "passed_on"), [(-1, -1), (1, 1), (0, 1)])
def test_what_is_passed_on_is_answered_and_does_not_ask_to_be_passed_on(acks: int, passed_on: int) -> None:
    link = LinkInMemory()
    node, asked = forwarding(link, t=[OTHER]), request_for(("t", 0), acks=acks)
    (answer,) = asyncio.run(node.send(node.divide(asked, ["t"]), asked))
    assert (answer.name, answer.partition_responses[0].base_offset) == ("t", 7)
    ((broker, request),) = link.sent
    assert (broker, request.acks, request.timeout_ms, request.forward) == (OTHER, passed_on, 5, False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionFailedError("gone"), ErrorCode.NETWORK_EXCEPTION),
        (RequestTimedOutError("late"), ErrorCode.REQUEST_TIMED_OUT),
        (ProtocolError(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_leader_that_does_not_answer_is_told_as_an_error_of_its_partitions(
    error: BrokerError, code: ErrorCode
) -> None:
    node, asked = forwarding(LinkInMemory(error), t=[OTHER]), request_for(("t", 0))
    (answer,) = asyncio.run(node.send(node.divide(asked, ["t"]), asked))
    assert answer.partition_responses[0].error_code == code


def test_answers_are_merged_topic_by_topic() -> None:
    def answer(name: str, index: int) -> TopicProduceResponse:
        return TopicProduceResponse(name=name, partition_responses=[PartitionProduceResponse(index=index)])

    whole = merged(ProduceResponse(responses=[answer("t", 0)]), [answer("u", 0), answer("t", 1)])
    assert [(topic.name, len(topic.partition_responses)) for topic in whole.responses] == [("t", 2), ("u", 1)]
    assert merged(None, []).responses == []
