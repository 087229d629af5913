"""What plans, status, events and metrics say of rights that Apache Kafka does not give a mirror."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient

from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.reconcile.control import CONTROL_TOPIC
from tests.client.reading_members import Brokers
from tests.daemon.conftest import (
    PATIENCE_SECONDS,
    MirrorFactory,
    MirrorProcess,
    mirror,
    mirrormaker,
    wait_until,
)
from tests.daemon.killed_mirrors import PARTITIONS, events
from tests.daemon.test_mirror import address, create, produce
from tests.daemon.test_planning import plan
from tests.interop.apache import ApacheKafka
from tests.interop.kraft import KraftKafka
from tests.interop.test_withdrawn_rights import destination, give_back, lacking_in, source, withdraw

__all__ = ["destination", "mirror", "source"]


def lacking(code: str, right: str, resource: str, cluster: str) -> str:
    return f"{code}_AUTHORIZATION_FAILED: the mirror lacks the right to {right} {resource} at {cluster!r}"


@contextlib.contextmanager
def withdrawn(cluster: Brokers, topic: str, operation: AclOperation) -> Iterator[None]:
    """Nobody may do that meanwhile."""
    withdraw(cluster, topic, operation)
    try:
        yield
    finally:
        give_back(cluster, topic, operation)


def names_of(told: dict[str, Any]) -> list[str]:
    return [event["name"] for event in told["events"]]


@pytest.mark.timeout(300)
def test_a_plan_tells_topics_that_may_not_be_seen_and_does_not_make_them(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    for topic in ("seen", "unseen"):
        create(source, topic, 1)
    create(destination, "made.seen", 1)
    selection = {"include": ["seen", "unseen"], "name": "made.{topic}"}
    file = mirror(source, destination, name="seer", topics=selection).file
    with withdrawn(source, "unseen", AclOperation.DESCRIBE):
        with withdrawn(destination, "made.seen", AclOperation.DESCRIBE):
            wait_until(lambda: lacking_in(plan(file)[1]) == {"seer: unseen at 'jfk'"}, "the rules hold there")
            wait_until(lambda: plan(file)[0] == 0, "and here: nothing is to be done")
            notices = {(each["kind"], each["about"]): each["message"] for each in plan(file)[1]["notices"]}
            missing = lacking("TOPIC", "Describe", "topic 'made.seen'", "aggregate")
            assert notices["obstacle", "seer: seen"] == f"is not copied: {missing}"
        wait_until(lambda: plan(file)[1]["steps"] == [], "it is there after all")
        assert ("obstacle", "seer: seen") not in {
            (each["kind"], each["about"]) for each in plan(file)[1]["notices"]
        }


@pytest.mark.timeout(300)
def test_of_a_route_that_may_see_none_of_its_topics_nobody_knows_how_much_waits(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    create(source, "shut", PARTITIONS)
    selection = {"include": ["shut"], "name": "{topic}"}
    running = mirror(source, destination, name="blind", topics=selection)
    with withdrawn(source, "shut", AclOperation.DESCRIBE):
        wait_until(lambda: running.status()["lag"] is None, "also where no daemon runs")
        running.start()
        told = running.wait_for(lambda told: "shut" in told["obstacles"], "the daemon says why")
        missing = lacking("TOPIC", "Describe", "topic 'shut'", "jfk")
        assert told["obstacles"] == {"shut": f"source: {missing}"}
        assert (told["lag"], told["counts"]["troubles"]) == (None, {"unauthorized": 1})
        (met,) = [event["details"] for event in told["events"] if event["name"] == "trouble_met"]
        assert (met["partition"], met["offset"], met["problem"]) == ("shut", None, f"source: {missing}")
    produce(source, "shut", range(100), PARTITIONS)
    running.wait_copied()
    assert running.stop() == 0


@pytest.mark.timeout(300)
def test_what_is_said_of_a_route_is_told_to_be_unknown_while_its_control_topic_may_not_be_read(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    create(source, "heeded", PARTITIONS)
    running = mirror(source, destination, name="heedful", topics={"include": ["heeded"], "name": "{topic}"})
    running.start()
    produce(source, "heeded", range(100), PARTITIONS)
    running.wait_copied()
    with withdrawn(destination, CONTROL_TOPIC, AclOperation.READ):
        told = running.wait_for(lambda told: told["problem"] is not None, "it is told")
        missing = lacking("TOPIC", "Read", f"topic {CONTROL_TOPIC!r}", "aggregate")
        assert told["problem"].startswith(f"what is wished of it is not known: {missing}")
        assert names_of(told).count("control_topic_not_read") == 1
    told = running.wait_for(lambda told: told["problem"] is None, "it is well again")
    assert names_of(told)[-1] == "control_topic_read"
    assert running.stop() == 0


def delete(cluster: KraftKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address(cluster)})
    for deleted in admin.delete_topics([topic], operation_timeout=PATIENCE_SECONDS).values():
        deleted.result(PATIENCE_SECONDS)


@pytest.mark.timeout(300)
def test_topics_that_a_mirror_keeps_and_that_began_anew_are_told(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    create(source, "booked", PARTITIONS)
    selection = {"include": ["booked"], "name": "{topic}"}
    running = mirror(source, destination, name="booker", topics=selection, delivery="exactly_once")
    running.start()
    produce(source, "booked", range(100), PARTITIONS)
    running.wait_copied()
    numbers = itertools.count(100)
    for topic in (CONTROL_TOPIC, LEDGER_TOPIC, POSITIONS_TOPIC):
        delete(destination, topic)
        wait_told(running, source, topic, numbers)
    told = mirrormaker("status", str(running.file)).stdout
    for topic in (CONTROL_TOPIC, LEDGER_TOPIC, POSITIONS_TOPIC):
        assert f"booker: {topic} at 'aggregate' was deleted, and began anew" in told
    assert running.stop() == 0


def wait_told(running: MirrorProcess, source: ApacheKafka, topic: str, numbers: itertools.count[int]) -> None:
    def is_told(told: dict[str, Any]) -> bool:
        number = next(numbers)
        produce(source, "booked", range(number, number + 1), PARTITIONS)
        return "kept_topic_begun_anew" in names_of(told) and topic in told["begun_anew"]

    running.wait_for(is_told, f"{topic} began anew")


@pytest.mark.timeout(300)
def test_what_cannot_be_committed_for_a_missing_right_is_told_once_and_names_the_right(
    source: ApacheKafka, destination: KraftKafka, mirror: MirrorFactory
) -> None:
    create(source, "stuck", PARTITIONS)
    selection = {"include": ["stuck"], "name": "{topic}"}
    running = mirror(source, destination, name="stuck", topics=selection, delivery="exactly_once", buckets=1)
    running.start()
    produce(source, "stuck", range(100), PARTITIONS)
    running.wait_copied()
    with withdrawn(destination, POSITIONS_TOPIC, AclOperation.WRITE):
        produce(source, "stuck", range(100, 200), PARTITIONS)
        told = running.wait_for(lambda told: told["counts"]["buckets_lost"] > 5, "it is tried on and on")
        missing = lacking("TOPIC", "Write", f"topic {POSITIONS_TOPIC!r}", "aggregate")
        assert names_of(told).count("transaction_given_up") == 1
        assert len(events(running, "bucket_taken_over")) == 1
        assert {each["problem"] for each in told["partitions"]} == {f"destination: {missing}"}
    running.wait_copied()
    with withdrawn(destination, POSITIONS_TOPIC, AclOperation.WRITE):
        produce(source, "stuck", range(200, 300), PARTITIONS)
        running.wait_for(lambda told: names_of(told).count("transaction_given_up") == 2, "told anew")
    running.wait_copied()
    assert running.stop() == 0
