"""Audits of routes whose source lost records after they were copied, on real clusters: what the destination
has kept of them is told, and all else is judged.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from tests.daemon.audits import audit, found
from tests.daemon.conftest import MirrorFactory, mirrormaker, wait_until
from tests.daemon.tampered_logs import altered_value, dropped, tamper
from tests.daemon.test_failure_policies import copied, lose_data, lose_end_and_position, notes, wait_halted
from tests.daemon.test_mirror import _count as count
from tests.daemon.test_mirror import consume, produce


@pytest.mark.parametrize(
    "delivery",
    [
        "at_least_once",
        pytest.param("exactly_once", marks=pytest.mark.long),
        pytest.param("at_most_once", marks=pytest.mark.long),
    ],
)
def test_what_a_source_lost_after_it_was_copied_is_told_and_all_else_is_judged(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    """One page of the ledger tells of what stands before the cut, and of what stood behind it."""
    source, destination = clusters
    running = copied(clusters, mirror, delivery, source_truncated="skip_and_record")
    lose_end_and_position(running, source, tmp_path)
    produce(source, "flights", range(150, 250), 1)
    running.start()
    wait_until(lambda: count(destination, "jfk.flights", 1) >= 250, "everything that there is now copied")
    assert running.stop() == 0
    copies = consume(destination, "jfk.flights", 1, 250)
    offsets = {int(each.value() or b""): each.offset() for each in copies}
    ((_, note),) = notes(destination)
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["problem"]) == (0, [], None), options
        assert (route["records"], route["equal"]) == (200, 200), options
        assert route["outcomes"] == {"lost_at_source": 50}, options
        ((lost,),) = (each["lost_at_source"] for each in route["partitions"])
        assert (lost["offsets"], lost["count"], lost["to_topic"]) == ([100, 150], 50, "jfk.flights")
        assert lost["to_offsets"] == [offsets[100], offsets[149] + 1]
        assert (lost["reason"], lost["noted_at_ms"]) == ("source_truncated", note["at_ms"])
    text = mirrormaker("audit", str(running.file)).stdout
    assert "flights-0 offsets 100 to 149: the source lost them after they were copied" in text
    place = TopicPartition("jfk.flights", 0)
    tamper(destination, {place: (altered_value, offsets[50])})
    tamper(destination, {place: (dropped, offsets[200])})
    produce(destination, "jfk.flights", range(120, 121), 1)
    code, route = audit(running.file)
    assert (code, [each[0] for each in found(route)]) == (2, ["unexplained"]), found(route)
    code, route = audit(running.file, "--deep")
    assert (code, {each[:2] for each in found(route)}) == (
        2,
        {("altered", 50), ("missing", 150), ("unexplained", 199)},
    )
    assert route["outcomes"]["lost_at_source"] == 50


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_what_a_source_lost_is_told_while_the_partition_stands_for_it(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    """What came at the same offsets since is still to be copied."""
    source, _ = clusters
    running = copied(clusters, mirror, delivery)
    lose_end_and_position(running, source, tmp_path)
    produce(source, "flights", range(150, 170), 1)
    running.start()
    at_ms = wait_halted(running, "source_truncated")["halts"][0]["at_ms"]
    produce(source, "flights", range(170, 250), 1)
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["problem"]) == (0, [], None), options
        assert route["equal"] == 100, options
        assert route["outcomes"] == {"lost_at_source": 50, "pending": 100}, options
        ((lost,),) = (each["lost_at_source"] for each in route["partitions"])
        assert (lost["offsets"], lost["count"], lost["noted_at_ms"]) == ([100, 150], 50, at_ms)
    assert mirrormaker("resume", str(running.file), "jfk-to-aggregate").returncode == 0
    running.wait_copied()
    assert running.stop() == 0
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        told = route["equal"], route["outcomes"]
        assert (code, found(route), *told) == (0, [], 200, {"lost_at_source": 50}), options


def test_a_source_that_lost_all_of_a_partition_is_told_of_while_it_stands(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    source, _ = clusters
    running = copied(clusters, mirror)
    assert running.stop() == 0
    lose_data(source, tmp_path / "jfk", "flights")
    produce(source, "flights", range(100, 250), 1)
    running.start()
    wait_halted(running, "source_truncated")
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route)) == (0, []), options
        assert (route["equal"], route["outcomes"]) == (0, {"lost_at_source": 100, "pending": 150}), options
    assert running.stop() == 0


def test_a_route_goes_on_where_the_logs_part_though_one_answer_had_records_of_before_and_behind(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    """As when a node that had led is elected that was not in sync: it has all of its epoch. Members of the
    group are in ZooKeeper, so that nobody begins anew as the node ends.
    """
    source, destination = clusters
    running = copied(clusters, mirror, membership="zookeeper", source_truncated="skip_and_record")
    assert running.stop() == 0
    produce(source, "flights", range(100, 107), 1)
    data, former = tmp_path / "jfk" / "node-1", tmp_path / "former"
    source.kill_node(1)
    shutil.copytree(data, former)
    source.start_node(1)
    produce(source, "flights", range(107, 150), 1)  # of a newer epoch
    running.start()
    running.wait_copied()
    source.kill_node(1)
    shutil.rmtree(data)
    shutil.copytree(former, data)
    source.start_node(1)
    produce(source, "flights", range(150, 250), 1)
    wait_until(lambda: count(destination, "jfk.flights", 1) >= 250, "everything that there is now copied")
    assert running.stop() == 0
    values = [int(each.value() or b"") for each in consume(destination, "jfk.flights", 1, 250)]
    assert values == list(range(250))
    assert [value["lost"] for _, value in notes(destination)] == [[107, 150]]
    for options in ((), ("--deep",)):
        code, route = audit(running.file, *options)
        assert (code, found(route), route["outcomes"]) == (0, [], {"lost_at_source": 43}), options


def test_a_route_goes_on_where_the_logs_part_though_epochs_of_several_leaders_followed_there(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path
) -> None:
    """The newest epoch of the log that is not above the one copied is one of which nothing was copied."""
    source, destination = clusters
    running = copied(clusters, mirror, membership="zookeeper", source_truncated="skip_and_record")
    data, common = tmp_path / "jfk" / "node-1", tmp_path / "common"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    def lead_with(log: Path | None, kept: Path | None) -> None:
        """Another node leads, with this log; what there is until now is kept."""
        source.kill_node(1)
        if kept is not None:
            shutil.copytree(data, kept)
        if log is not None:
            shutil.rmtree(data)
            shutil.copytree(log, data)
        source.start_node(1)

    lead_with(None, common)
    produce(source, "flights", range(100, 120), 1)
    running.wait_copied()
    assert running.stop() == 0
    lead_with(common, ours)
    produce(source, "flights", range(200, 230), 1)
    lead_with(ours, theirs)
    produce(source, "flights", range(120, 150), 1)
    running.start()
    running.wait_copied()
    lead_with(theirs, None)
    produce(source, "flights", range(230, 250), 1)
    wait_until(lambda: count(destination, "jfk.flights", 1) >= 200, "everything that there is now copied")
    assert running.stop() == 0
    values = [int(each.value() or b"") for each in consume(destination, "jfk.flights", 1, 200)]
    assert values == [*range(150), *range(200, 250)]
    assert [value["lost"] for _, value in notes(destination)] == [[100, 150]]
