"""`broker transactions` against a real node."""

from __future__ import annotations

import pytest

from broker.embedded import EmbeddedCluster
from broker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from broker.wire.messages.find_coordinator import FindCoordinatorRequest
from broker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.conftest import until
from tests.node.raw_client import RawClient, create_topic
from tests.node.test_cli import broker, done
from tests.node.transactions import RawTransactions


@pytest.fixture
def bootstrap(node: EmbeddedCluster) -> str:
    return f"--bootstrap-server={node.bootstrap[0]}"


def begin(client: RawClient, name: str, topic: str) -> InitProducerIdResponse:
    """An open transaction of a coordinator, in partition 0 of a topic."""
    finding = FindCoordinatorRequest(coordinator_keys=[name], key_type=1)
    until(lambda: client.request(finding).coordinators[0].error_code == 0)
    asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    until(lambda: client.request(asked).error_code == 0)
    made = client.request(asked)
    assert made.error_code == 0
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    (added,) = client.request(adding, 3).results_by_topic_v3_and_below
    assert added.results_by_partition[0].partition_error_code == 0
    return made


def test_transactions_are_listed_and_described(client: RawClient, bootstrap: str, topic: str) -> None:
    create_topic(client, topic)
    name = f"desk-{topic}"
    made = begin(client, name, topic)
    owner = f"TransactionalId: {name}\tCoordinator: 1\tProducerId: {made.producer_id}"
    listing = f"{owner}\tState: Ongoing"
    assert listing in done("transactions", "list", bootstrap).lines
    assert listing in done("transactions", "list", "--state", "Ongoing", bootstrap).lines
    assert listing not in done("transactions", "list", "--state", "Empty", bootstrap).lines
    of_producer = ("--producer-id", str(made.producer_id))
    assert done("transactions", "list", *of_producer, bootstrap).lines == [listing]
    too_long = ("--duration-above-ms", "3600000")
    assert done("transactions", "list", *too_long, *of_producer, bootstrap).lines == []
    (line,) = done("transactions", "describe", name, bootstrap).lines
    assert line.startswith(f"{owner}\tProducerEpoch: 1\tState: Ongoing\tTimeoutMs: 60000\tStartedMs: ")
    assert line.endswith(f"\tPartitions: {topic}-0")
    (described,) = done("transactions", "describe", name, bootstrap, "--output=json").json
    assert described["partitions"] == [[topic, 0]]


def test_what_is_not_known_is_an_error(bootstrap: str) -> None:
    unknown = broker("transactions", "describe", "nobody's", bootstrap)
    assert (unknown.code, unknown.lines) == (1, [])
    assert "TRANSACTIONAL_ID_NOT_FOUND" in unknown.errors
    strange = broker("transactions", "list", "--state", "Strange", bootstrap)
    assert strange.code == 1
    assert "no such state: Strange" in strange.errors


@pytest.mark.parametrize("action", [["producers"], ["abort", "--start-offset", "0"]])
def test_a_partition_that_is_not_there_is_named(
    client: RawClient, bootstrap: str, topic: str, action: list[str]
) -> None:
    create_topic(client, topic)
    for name, words in (
        (topic, f"{topic} has 1 partitions and no partition 7"),
        ("nowhere", "topic nowhere"),
    ):
        asked = broker("transactions", *action, "--topic", name, "--partition", "7", bootstrap)
        assert (asked.code, asked.lines) == (1, [])
        assert f"UNKNOWN_TOPIC_OR_PARTITION: {words}" in asked.errors


def test_a_transaction_that_hangs_is_found_and_ended(client: RawClient, bootstrap: str, topic: str) -> None:
    create_topic(client, topic)
    begin(client, f"desk-{topic}", topic)
    hanging = RawTransactions(client, topic)
    assert hanging.write(b"first") == 0
    at = ("--topic", topic)
    place = (*at, "--partition", "0")
    found = f"Topic: {topic}\tPartition: 0\tProducerId: {hanging.producer_id}\tProducerEpoch: 0\t"
    patient = done("transactions", "find-hanging", *at, bootstrap)
    assert patient.lines == [], "its producer may yet end it"
    (line,) = done("transactions", "find-hanging", *at, "--max-transaction-timeout", "0", bootstrap).lines
    assert line.startswith(found)
    assert line.endswith("\tStartOffset: 0")
    (producer,) = done("transactions", "producers", *place, bootstrap, "--output=json").json
    assert (producer["producer_id"], producer["first_offset"]) == (hanging.producer_id, 0)
    wrong = broker("transactions", "abort", *place, "--start-offset", "7", bootstrap)
    assert wrong.code == 1
    assert "no such transaction" in wrong.errors
    done("transactions", "abort", *place, "--start-offset", "0", bootstrap)
    (producer,) = done("transactions", "producers", *place, bootstrap, "--output=json").json
    assert producer["first_offset"] == -1
    assert hanging.write(b"second") == 0
    done("transactions", "abort", *place, "--producer-id", str(hanging.producer_id), bootstrap)
    assert done("transactions", "find-hanging", *at, "--max-transaction-timeout", "0", bootstrap).lines == []
    reading = ("consume", topic, "--from-beginning", "--timeout-ms", "500", bootstrap)
    assert done(*reading).lines == ["first", "second"]
    assert done(*reading, "--isolation-level", "read_committed").lines == []
