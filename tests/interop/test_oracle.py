"""The cases that our node must pass in every version are true of Apache Kafka too: the tests themselves are
tested here.
"""

from __future__ import annotations

import asyncio

import pytest

from broker.client.connection import Connection
from broker.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from broker.wire.messages.list_config_resources import ListConfigResourcesRequest
from broker.wire.registry import api_of
from tests.conformance.cases import CASES, Case
from tests.conformance.scene import Place, Scene, prepare
from tests.interop.apache import ApacheKafka

TIMEOUT_SECONDS = 30
_NOT_WITH_ZOOKEEPER = (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupDescribeRequest,
    DescribeTopicPartitionsRequest,
    ListConfigResourcesRequest,
)
"""Apache Kafka 3.9 does not serve these without KRaft, though it names some of them among its APIs."""
_THEIRS = [case for case in CASES if case.request not in _NOT_WITH_ZOOKEEPER]


@pytest.fixture(scope="module")
def place(apache_kafka: ApacheKafka) -> Place:
    """Apache Kafka, with a topic that has records."""
    return asyncio.run(prepare(apache_kafka.address))


@pytest.mark.parametrize(
    "case", _THEIRS, ids=[f"{api_of(case.request).name}-{case.play.__name__}" for case in _THEIRS]
)
def test_apache_kafka_has_the_same_outcome_in_every_version(place: Place, case: Case) -> None:
    async def play() -> None:
        async with await Connection.open(place.address) as connection:
            for version in case.versions(connection.version_of(case.request)):
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await case.play(Scene(place=place, connection=connection), version)

    asyncio.run(play())
