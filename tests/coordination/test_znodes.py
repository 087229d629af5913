import contextlib
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordination import paths
from broker.coordination.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ConsumerOffsetZnode,
    ConsumerZnode,
    ControllerEpochZnode,
    ControllerZnode,
    Endpoint,
    FeaturesZnode,
    PartitionListZnode,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    ReassignmentZnode,
    TopicZnode,
    decode_uuid,
    encode_uuid,
)
from broker.errors import CoordinationError
from broker.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition

PATH = "/some/path"
PLAINTEXT = Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol="PLAINTEXT")
TLS = Endpoint(listener="OUTSIDE", host="::1", port=9093, security_protocol="SSL")
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)

VALUES: list[tuple[Any, str]] = [
    (
        BrokerZnode(endpoints=(PLAINTEXT, TLS), rack="a", timestamp_ms=5),
        '{"version":5,"host":"127.0.0.1","port":9092,'
        '"endpoints":["PLAINTEXT://127.0.0.1:9092","OUTSIDE://[::1]:9093"],'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","OUTSIDE":"SSL"},'
        '"rack":"a","jmx_port":-1,"timestamp":"5","features":{}}',
    ),
    (
        TopicZnode(
            topic_id=TopicId(UUID(int=1)), partitions={0: (ONE, TWO), 1: (TWO, THREE)}, adding={0: (TWO,)}
        ),
        '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1,2],"1":[2,3]},'
        '"adding_replicas":{"0":[2]},"removing_replicas":{}}',
    ),
    (
        PartitionStateZnode(controller_epoch=3, leader=ONE, leader_epoch=LeaderEpoch(4), isr=(ONE, TWO)),
        '{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}',
    ),
    (
        ControllerZnode(broker_id=TWO, timestamp_ms=17),
        '{"version":1,"brokerid":2,"timestamp":"17"}',
    ),
    (ControllerEpochZnode(epoch=12), "12"),
    (ClusterIdZnode(cluster_id="AAAAAAAAAAAAAAAAAAAAAQ"), '{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAQ"}'),
    (
        PartitionListZnode(partitions=(TopicPartition("t", 0),)),
        '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    ),
    (
        ReassignmentZnode(partitions={TopicPartition("t", 0): (ONE, TWO)}),
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    ),
    (
        FeaturesZnode(levels={"group.version": 1, "transaction.version": 2}),
        '{"version":2,"status":0,"features":{"group.version":{"max_version_level":1},'
        '"transaction.version":{"max_version_level":2}}}',
    ),
    (ConfigZnode(config={"retention.ms": "1"}), '{"version":1,"config":{"retention.ms":"1"}}'),
    (ConfigChangeZnode(entity_path="topics/t"), '{"version":2,"entity_path":"topics/t"}'),
    (
        ConsumerZnode(subscription={"t": 2}, pattern="static", timestamp_ms=9),
        '{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"9"}',
    ),
    (ConsumerOffsetZnode(offset=77), "77"),
    (
        ProducerIdBlockZnode(broker_id=ONE, first=0, last=999),
        '{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
]


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda value: type(value).__name__)
def test_a_znode_is_written_as_the_layout_says_and_read_back(value: Any, text: str) -> None:
    assert value.encode().decode() == text
    assert type(value).decode(text.encode(), PATH) == value


@pytest.mark.parametrize(("value", "text"), VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("garbage", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b'{"version":1}'])
def test_garbage_is_an_error_that_names_the_path(value: Any, text: str, garbage: bytes) -> None:
    optional = isinstance(value, TopicZnode | PartitionListZnode | ReassignmentZnode | ConfigZnode)
    if garbage.startswith(b'{"version"') and optional:
        return
    with pytest.raises(CoordinationError, match=PATH):
        type(value).decode(garbage, PATH)


@pytest.mark.parametrize("registered", [b'{ "t": 2,"u": 1 }', b"{  }", b"*4*white.*", b"!1!black.*"])
def test_a_registration_of_kafka_0_7_is_refused_by_name(registered: bytes) -> None:
    with pytest.raises(CoordinationError, match=rf"{PATH} .*Kafka 0\.7"):
        ConsumerZnode.decode(registered, PATH)


STATE = {"controller_epoch": 1, "leader": 1, "leader_epoch": 0, "isr": [1]}
BROKER = {"endpoints": ["A://h:1"], "listener_security_protocol_map": {"A": "SSL"}}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (TopicZnode, {"partitions": {"0": []}}),
        (TopicZnode, {"partitions": {"0": [1, 2, 1]}}),
        (TopicZnode, {"partitions": {"0": [-1]}}),
        (TopicZnode, {"partitions": {"0": [2**31]}}),
        (TopicZnode, {"partitions": {str(2**31): [1]}}),
        (TopicZnode, {"partitions": {"0": [1]}, "adding_replicas": {"0": [2, 2]}}),
        (PartitionStateZnode, STATE | {"leader": -2}),
        (PartitionStateZnode, STATE | {"leader": 2**31}),
        (PartitionStateZnode, STATE | {"leader_epoch": -1}),
        (PartitionStateZnode, STATE | {"leader_epoch": 2**31 - 1}),
        (PartitionStateZnode, STATE | {"controller_epoch": 2**31 - 1}),
        (PartitionStateZnode, STATE | {"isr": [1, 1]}),
        (PartitionStateZnode, STATE | {"isr": [2**31]}),
        (BrokerZnode, BROKER | {"listener_security_protocol_map": {"A": "ODD"}}),
        (BrokerZnode, BROKER | {"endpoints": ["A://h:65536"]}),
        (ControllerZnode, {"brokerid": 2**31}),
        (PartitionListZnode, {"partitions": [{"topic": "t", "partition": 2**31}]}),
    ],
)
def test_what_no_node_would_write_is_an_error_that_names_the_path(kind: Any, fields: object) -> None:
    with pytest.raises(CoordinationError, match=PATH):
        kind.decode(json.dumps(fields).encode(), PATH)


@pytest.mark.parametrize("epoch", [-1, 2**31 - 1])
def test_an_epoch_of_a_controller_that_no_election_leads_to_is_an_error(epoch: int) -> None:
    with pytest.raises(CoordinationError, match=PATH):
        ControllerEpochZnode.decode(str(epoch).encode(), PATH)


@given(data=st.data())
@settings(max_examples=100)
def test_any_json_decodes_or_is_a_coordination_error(data: st.DataObject) -> None:
    value, text = data.draw(st.sampled_from([pair for pair in VALUES if pair[1].startswith("{")]))
    fields = json.loads(text)
    leaf = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    anything = leaf | st.lists(leaf, max_size=2) | st.dictionaries(st.text(max_size=2), leaf, max_size=2)
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(anything)
    with contextlib.suppress(CoordinationError):
        type(value).decode(json.dumps(fields).encode(), PATH)


def test_older_versions_are_read() -> None:
    broker = BrokerZnode.decode(b'{"version":1,"host":"h","port":9092,"jmx_port":9999}', PATH)
    assert broker.endpoints == (
        Endpoint(listener="PLAINTEXT", host="h", port=9092, security_protocol="PLAINTEXT"),
    )
    broker = BrokerZnode.decode(
        b'{"version":2,"host":"h","port":-1,"endpoints":["SSL://h:9093"],"timestamp":"4"}', PATH
    )
    assert broker.endpoints == (Endpoint(listener="SSL", host="h", port=9093, security_protocol="SSL"),)
    assert broker.timestamp_ms == 4
    topic = TopicZnode.decode(b'{"version":1,"partitions":{"10":[1],"2":[2]}}', PATH)
    assert topic.topic_id == NO_TOPIC_ID
    assert list(topic.partitions) == [2, 10]
    change = ConfigChangeZnode.decode(b'{"version":1,"entity_type":"topics","entity_name":"t"}', PATH)
    assert change.entity_path == "topics/t"


@given(st.uuids())
def test_ids_take_22_characters_and_come_back(value: UUID) -> None:
    assert len(encode_uuid(value)) == 22
    assert decode_uuid(encode_uuid(value), PATH) == value


def test_paths_follow_the_layout() -> None:
    tp = TopicPartition("t", 3)
    assert paths.broker(ONE) == "/brokers/ids/1"
    assert paths.partition_state(tp) == "/brokers/topics/t/partitions/3/state"
    assert paths.topic_config("t") == "/config/topics/t"
    assert paths.delete_topic("t") == "/admin/delete_topics/t"
    assert paths.broker_config(None) == "/config/brokers/<default>"
    assert paths.consumer_owner("g", tp) == "/consumers/g/owners/t/3"
    assert paths.consumer_offset("g", tp) == "/consumers/g/offsets/t/3"
    assert paths.consumer_id("g", "c") == "/consumers/g/ids/c"
