"""Routes that share records out otherwise than before, while their lanes are not equally far."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml

from tests.client.reading_members import Brokers
from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, wait_until
from tests.daemon.killed_mirrors import COPY, TOPIC, events, numbers_at, read
from tests.daemon.test_mirror import create, produce

SIDE = "side"


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_records_come_once_whatever_partition_they_were_to_go_to_before(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    create(destination, COPY, 3)
    produce(source, TOPIC, range(4_000), 1, **{"batch.size": 1_000})
    running = mirror(
        source,
        destination,
        delivery=delivery,
        topics={"include": [TOPIC]},
        on={"partition_mismatch": "skip_and_record"},
        resources={"bytes_per_second": 8_000, "fetch_partition_bytes": 8_000},
    )
    text = yaml.safe_load(running.file.read_text())
    for policy in ("key", "round_robin", "key", "same"):
        there = numbers_at(destination).total()
        text["routes"][0]["topics"]["partitions"] = policy
        running.file.write_text(yaml.safe_dump(text))
        running.start()
        wait_until(lambda there=there: numbers_at(destination).total() > there + 300, "it copies")  # type: ignore[misc]
        assert running.stop() == 0
    text["routes"][0]["resources"]["bytes_per_second"] = 8_000_000
    running.file.write_text(yaml.safe_dump(text))
    running.start()
    running.wait_copied()
    assert numbers_at(destination) == Counter(range(4_000))
    assert events(running, "records_maybe_lost") == []
    assert running.stop() == 0


@pytest.mark.timeout(300)
@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_records_come_once_whatever_topic_a_step_sent_them_to_before(
    cluster: ClusterFactory, mirror: MirrorFactory, delivery: str
) -> None:
    """Where the route ends in good order."""
    source, destination = cluster("jfk"), cluster("aggregate")
    create(source, TOPIC, 1)
    for topic in (COPY, SIDE):
        create(destination, topic, 1)
    produce(source, TOPIC, range(12_000), 1, **{"batch.size": 1_000})
    running = mirror(
        source,
        destination,
        delivery=delivery,
        topics={"include": [TOPIC]},
        transforms=[{"route": {"to": SIDE, "when": {"key_matches": "key-0"}}}],
        resources={"bytes_per_second": 8_000, "fetch_partition_bytes": 8_000},
    )
    text = yaml.safe_load(running.file.read_text())
    for keys in ("key-0", "key-1", "key-2", "key-[01]"):
        there = numbers_in(destination).total()
        text["routes"][0]["transforms"][0]["route"]["when"]["key_matches"] = keys
        running.file.write_text(yaml.safe_dump(text))
        running.start()
        wait_until(lambda there=there: numbers_in(destination).total() > there + 300, "it copies")  # type: ignore[misc]
        assert running.stop() == 0
    text["routes"][0]["resources"]["bytes_per_second"] = 8_000_000
    running.file.write_text(yaml.safe_dump(text))
    running.start()
    running.wait_copied()
    assert numbers_in(destination) == Counter(range(12_000))
    assert running.stop() == 0


def numbers_in(cluster: Brokers) -> Counter[int]:
    """What readers find of either topic, of one partition each."""
    messages = [each for topic in (COPY, SIDE) for each in read(cluster, topic, "read_committed", 1)]
    return Counter(int(each.value() or b"") for each in messages)
