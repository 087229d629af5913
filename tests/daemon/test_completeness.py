"""Whether a time has arrived whole at a topic, asked of real clusters."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.embedded import EmbeddedCluster
from mirrormaker.audit.completeness import Completeness, coming_topics, read_completeness
from mirrormaker.audit.windows import TimeWindow
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import TopicSelection
from mirrormaker.topology.naming import compile_naming
from tests.client.reading_members import Brokers
from tests.daemon.conftest import PATIENCE_SECONDS, MirrorFactory, mirrormaker, wait_until
from tests.daemon.test_deep import grow
from tests.daemon.test_mirror import create, producer

HOUR_MS = 3_600_000
SOME_HOUR_MS = 1_357_002_000_000


def write(source: Brokers, hour: int, partitions: int, count: int = 10) -> None:
    writer = producer(source)
    for number in range(count):
        at_ms = SOME_HOUR_MS + hour * HOUR_MS + number
        writer.produce("flights", b"%d" % number, partition=number % partitions, timestamp=at_ms)
    assert writer.flush(PATIENCE_SECONDS) == 0


def completeness(file: Path, hour: int, *, hours: int = 1, lateness_ms: int = 0) -> Completeness:
    start_ms = SOME_HOUR_MS + hour * HOUR_MS
    window = TimeWindow(from_ms=start_ms, to_ms=start_ms + hours * HOUR_MS)
    topics = ["jfk.flights"]
    found = read_completeness(load_topology(file), "aggregate", topics, window, lateness_ms=lateness_ms)
    return asyncio.run(found)


def test_an_hour_is_complete_once_all_that_the_source_has_of_it_is_copied(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 2)
    write(source, 0, 2)
    write(source, 2, 1)
    running = mirror(source, destination)
    before = completeness(running.file, 0)
    assert (before.is_complete, sum(each.missing_offsets for each in before.sources)) == (False, 10)
    assert completeness(running.file, 1).is_complete, "nothing was written in that hour"
    running.start()
    running.wait_copied()
    running.stop()
    assert [completeness(running.file, hour).is_complete for hour in range(4)] == [True] * 4
    write(source, 2, 1, count=3)
    late = completeness(running.file, 2)
    assert late.missing_lines() == ["jfk: flights-0: 3 offsets have not arrived (15 to 17)"]
    assert completeness(running.file, 1).is_complete
    assert not completeness(running.file, 1, lateness_ms=HOUR_MS + 1).is_complete
    far = completeness(running.file, 0, hours=10_000_000)
    assert not far.is_over
    assert not far.is_complete
    source.stop()
    (away,) = completeness(running.file, 0).sources
    assert (away.topic, away.is_complete) == ("flights", False)
    assert away.problem is not None
    assert "'jfk'" in away.problem
    topology = load_topology(running.file)
    for include, told in ((r"lga\..*", 0), (r".*\.flights", 1)):
        wanted = compile_naming("aggregate", TopicSelection(include=(include,)))
        coming = asyncio.run(coming_topics(topology, "aggregate", wanted))
        assert len(coming.problems) == told, "any topic of this source could come"


def test_what_an_open_transaction_of_others_holds_back_is_not_complete(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    write(source, 0, 1)
    running = mirror(source, destination)
    running.start()
    running.wait_copied()
    other = producer(destination, **{"transactional.id": "another route"})
    other.init_transactions(PATIENCE_SECONDS)
    other.begin_transaction()
    other.produce("jfk.flights", b"another's", partition=0)
    assert other.flush(PATIENCE_SECONDS) == 0
    write(source, 1, 1)
    running.wait_copied()
    assert completeness(running.file, 0).is_complete, "it is before that transaction"
    held_back = completeness(running.file, 1)
    assert not held_back.is_complete
    told = "a transaction is open in aggregate: jfk.flights (10 to 19)"
    assert held_back.missing_lines() == [f"jfk: flights-0: 10 offsets cannot be read yet: {told}"]
    other.commit_transaction(PATIENCE_SECONDS)
    wait_until(lambda: completeness(running.file, 1).is_complete, "its end is written")
    running.stop()


def test_what_a_route_is_told_not_to_bring_is_not_waited_for(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    write(source, 0, 1)
    running = mirror(source, destination, start="latest")
    running.start()
    running.wait_copied()
    write(source, 1, 1)
    running.wait_copied()
    for verb in (["pause"], ["seek", "--to", "latest"], ["resume"]):
        if "seek" in verb:
            write(source, 2, 1)
        assert mirrormaker(verb[0], str(running.file), "jfk-to-aggregate", *verb[1:]).returncode == 0
    write(source, 3, 1, count=1)
    running.wait_copied()
    running.stop()
    assert [completeness(running.file, hour).missing_lines() for hour in range(4)] == [[]] * 4
    write(source, 3, 1, count=2)
    assert completeness(running.file, 3).missing_lines() == [
        "jfk: flights-0: 2 offsets have not arrived (31 to 32)"
    ]


def test_a_seek_that_was_taken_back_leaves_nothing_out(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    source, destination = clusters
    create(source, "flights", 1)
    write(source, 0, 1)
    running = mirror(source, destination)
    running.start()
    running.wait_copied()
    assert mirrormaker("pause", str(running.file), "jfk-to-aggregate").returncode == 0
    write(source, 1, 1)
    for to in ("latest", "10"):
        assert mirrormaker("seek", str(running.file), "jfk-to-aggregate", "--to", to).returncode == 0
    assert completeness(running.file, 0).is_complete
    assert completeness(running.file, 1).missing_lines() == [
        "jfk: flights-0: 10 offsets have not arrived (10 to 19)"
    ]
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    running.stop()
    assert completeness(running.file, 1).is_complete


def test_an_hour_is_complete_also_before_the_destination_had_its_partitions(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory
) -> None:
    """Records are spread over them: what one partition takes now was another's to take then."""
    source, destination = clusters
    create(source, "flights", 1)
    create(destination, "jfk.flights", 2)
    write(source, 0, 1)
    running = mirror(source, destination, topics={"include": ["flights"], "partitions": "round_robin"})
    running.start()
    running.wait_copied()
    grow(destination, "jfk.flights", 3)
    wait_until(lambda: "destination_partitions_changed" in running.log.read_text(), "it is noticed")
    write(source, 1, 1)
    running.wait_copied()
    running.stop()
    assert [completeness(running.file, hour).missing_lines() for hour in range(2)] == [[], []]
