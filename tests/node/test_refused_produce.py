"""What producers hear of batches that are not what they should be."""

from __future__ import annotations

from random import Random

import pytest

from broker.embedded import EmbeddedCluster
from broker.errors import ErrorCode
from broker.records.batch import Codec
from broker.storage.admission import OPENED_AT_ONCE_MAX
from broker.types import HostPort
from broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.wire.messages.produce import ProduceRequest
from tests.conftest import until
from tests.fuzz.damage import damaged
from tests.fuzz.targets import BY_NAME
from tests.node.raw_client import (
    batch_of,
    connected,
    create_topic,
    fetch,
    produce,
    produce_request,
    values_of,
)

NEWEST_WITH_MESSAGES = 2
ROUNDS = 150


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("kind", ["batch", "old message"])
def test_no_batch_makes_a_node_say_that_it_met_an_unknown_error(
    address: HostPort, node: EmbeddedCluster, topic: str, kind: str, cleanup: str
) -> None:
    """Some clients take that for a reason to send again what was stored."""
    random = Random(f"{kind} {cleanup}")
    seeds = list(BY_NAME[kind].seeds())
    with connected(address) as client:
        create_topic(client, topic, cleanup_policy=cleanup)
        for _ in range(ROUNDS):
            newest = NEWEST_WITH_MESSAGES if kind == "old message" else ProduceRequest.max_version
            version = random.randrange(0 if kind == "old message" else 3, newest + 1)
            records = damaged(random.choice(seeds), random)
            answer = client.request(produce_request(topic, records), version)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code != ErrorCode.UNKNOWN_SERVER_ERROR
        assert produce(client, topic, batch_of(b"after")).error_code == 0
        assert node.dead_nodes() == {}


def test_what_was_refused_is_not_stored(address: HostPort, topic: str) -> None:
    random = Random("stored")
    with connected(address) as client:
        create_topic(client, topic)
        stored = []
        for number in range(ROUNDS):
            value = b"value %d" % number
            records = bytearray(batch_of(value))
            if number % 3:
                records[random.randrange(17, len(records))] ^= 1 << random.randrange(8)
            if produce(client, topic, records).error_code == 0:
                stored.append(value)
        assert len(stored) == ROUNDS // 3
        assert values_of(fetch(client, topic, 0).records) == stored


@pytest.mark.parametrize(
    ("cleanup", "size"), [("delete", 1), ("compact", 1), ("compact", 2 * OPENED_AT_ONCE_MAX)]
)
def test_a_batch_behind_one_that_was_refused_for_now_waits_for_it(
    address: HostPort, topic: str, cleanup: str, size: int
) -> None:
    """Or its producer would be told to be out of order, and send both again under another identity."""
    one = b"1" * size
    first = batch_of(one, b"2", codec=Codec.GZIP, producer_id=9_001, epoch=0, sequence=0)
    second = batch_of(b"3", producer_id=9_001, epoch=0, sequence=2)
    third = batch_of(b"4", producer_id=9_001, epoch=0, sequence=3)
    with connected(address) as client:
        create_topic(client, topic, min_insync_replicas="2", cleanup_policy=cleanup)
        assert produce(client, topic, first).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        change = AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        client.request(IncrementalAlterConfigsRequest(resources=[resource]))
        until(lambda: produce(client, topic, batch_of(b"0")).error_code == 0)
        for behind in (second, third):
            assert produce(client, topic, behind).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        for again in (first, second, third):
            assert produce(client, topic, again).error_code == 0
        stored = values_of(fetch(client, topic, 0).records)
    assert [value for value in stored if value != b"0"] == [one, b"2", b"3", b"4"]


def test_a_batch_behind_one_that_came_before_its_topic_was_here_waits_for_it(
    address: HostPort, topic: str
) -> None:
    """Clients may hear of a leader before it does; its log knows nothing of them and would take any batch."""
    first, second, third = (
        batch_of(b"%d" % number, producer_id=9_002, epoch=0, sequence=number) for number in range(3)
    )
    with connected(address) as client:
        assert produce(client, topic, first).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        create_topic(client, topic)
        until(lambda: produce(client, topic, batch_of(b"here")).error_code == 0)
        for behind in (second, third):
            assert produce(client, topic, behind).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for again in (first, second, third):
            assert produce(client, topic, again).error_code == 0
        assert values_of(fetch(client, topic, 0).records) == [b"here", b"0", b"1", b"2"]
