"""What plans, status, events and metrics say of rights that Apache Kafka does not give a mirror."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from tests.client.reading_members import Brokers
from tests.daemon.conftest import (
    MirrorFactory,
    mirror,
    wait_until,
)
from tests.daemon.killed_mirrors import PARTITIONS
from tests.daemon.test_mirror import create, produce
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
