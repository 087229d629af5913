"""Sources that several nodes have led, none of which had all that the others had, while no mirror ran: on
real clusters, by which records the destination has, and what is told of those that the source lost.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import MirrorFactory, MirrorProcess
from tests.daemon.test_failure_policies import copied, notes
from tests.daemon.test_mirror import consume, produce


class Leaders:
    """The node of the source, which has the log of one leader after the other: all of its data, or only that
    of the topic, where groups keep their positions.
    """

    def __init__(self, source: EmbeddedCluster, root: Path, *, with_positions: bool) -> None:
        self._source = source
        self._root = root
        self._data = root / "jfk" / "node-1"
        if not with_positions:
            (self._data,) = self._data.rglob("flights-0")

    def lead(self, log: str | None, *, keep: str | None = None, positions: str | None = None) -> None:
        """Another leads, with this log, or the one that there is; what there is until now is kept as that.
        `positions`: those of groups are what was kept so.
        """
        self._source.kill_node(1)
        if keep is not None:
            shutil.copytree(self._data, self._root / keep)
        if log is not None:
            shutil.rmtree(self._data)
            shutil.copytree(self._root / log, self._data)
        for kept in [] if positions is None else (self._root / positions).glob("__consumer_offsets-*"):
            shutil.rmtree(self._data / kept.name)
            shutil.copytree(kept, self._data / kept.name)
        self._source.start_node(1)


def end_at(running: MirrorProcess, position: int) -> None:
    """A process ends once it has committed all."""
    running.wait_for(
        lambda told: [each["committed"] for each in told["partitions"]] == [position],
        "all of it is committed",
    )
    assert running.stop() == 0


def copied_before(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    delivery: str,
    membership: str = "coordinator",
) -> MirrorProcess:
    """A process has copied 100 records, and ended."""
    running = copied(clusters, mirror, delivery, membership, source_truncated="skip_and_record")
    end_at(running, 100)
    return running


def run_to(running: MirrorProcess, position: int) -> None:
    """Another process copies what there is."""
    running.start()
    running.wait_copied()
    end_at(running, position)


def values_copied(running: MirrorProcess, destination: EmbeddedCluster, count: int) -> list[int]:
    """All so many that are there once the last process has copied what there is."""
    running.start()
    running.wait_copied()
    assert running.stop() == 0
    return [int(each.value() or b"") for each in consume(destination, "jfk.flights", 1, count)]


@pytest.mark.parametrize(
    ("delivery", "membership", "with_positions"),
    [
        ("at_least_once", "coordinator", False),
        ("at_most_once", "coordinator", True),
        pytest.param("at_least_once", "coordinator", True, marks=pytest.mark.long),
        pytest.param("at_most_once", "coordinator", False, marks=pytest.mark.long),
        pytest.param("exactly_once", "coordinator", False, marks=pytest.mark.long),
        pytest.param("exactly_once", "coordinator", True, marks=pytest.mark.long),
        pytest.param("at_least_once", "zookeeper", False, marks=pytest.mark.long),
    ],
)
def test_a_route_goes_on_where_the_logs_part_though_a_former_process_copied_what_is_gone(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster],
    mirror: MirrorFactory,
    tmp_path: Path,
    delivery: str,
    membership: str,
    with_positions: bool,
) -> None:
    """The leader that is left had an epoch of its own, which goes farther than where the one copied began."""
    source, destination = clusters
    running = copied_before(clusters, mirror, delivery, membership)
    leaders = Leaders(source, tmp_path, with_positions=with_positions)
    leaders.lead(None, keep="common")
    produce(source, "flights", range(300, 400), 1)
    leaders.lead("common", keep="theirs")
    produce(source, "flights", range(100, 120), 1)
    run_to(running, 120)
    leaders.lead(None)
    produce(source, "flights", range(120, 150), 1)
    run_to(running, 150)
    leaders.lead("theirs")
    produce(source, "flights", range(400, 450), 1)
    assert values_copied(running, destination, 300) == [*range(150), *range(300, 450)]
    assert [value["lost"] for _, value in notes(destination)] == [[100, 150]]


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("at_most_once", marks=pytest.mark.long)])
def test_a_position_that_went_back_to_before_where_the_logs_part_has_nothing_copied_twice(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    source, destination = clusters
    running = copied_before(clusters, mirror, delivery)
    leaders = Leaders(source, tmp_path, with_positions=True)
    produce(source, "flights", range(100, 120), 1)
    leaders.lead(None, keep="theirs")
    produce(source, "flights", range(120, 150), 1)
    run_to(running, 150)
    leaders.lead("theirs")
    produce(source, "flights", range(300, 400), 1)
    assert values_copied(running, destination, 250) == [*range(150), *range(300, 400)]
    ((_, note),) = notes(destination)
    assert note["lost"] == [120, 150]
    assert "the position with them, which went back to 100" in note["problem"]


@pytest.mark.parametrize("delivery", ["at_most_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def test_a_position_in_a_log_that_was_gone_already_does_not_count_where_it_comes_back(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    """It may be farther than what has been copied since of the log that took the other's place."""
    source, destination = clusters
    running = copied_before(clusters, mirror, delivery)
    leaders = Leaders(source, tmp_path, with_positions=True)
    leaders.lead(None, keep="common")
    produce(source, "flights", range(100, 150), 1)
    run_to(running, 150)
    leaders.lead("common", keep="ours", positions="ours")
    produce(source, "flights", range(300, 310), 1)
    run_to(running, 110)
    leaders.lead(None, keep="theirs")
    produce(source, "flights", range(310, 330), 1)
    run_to(running, 130)
    leaders.lead("theirs", positions="ours")
    produce(source, "flights", range(400, 450), 1)
    values = values_copied(running, destination, 230)
    assert values == [*range(150), *range(300, 330), *range(400, 450)]
    assert [note["lost"] for _, note in notes(destination)] == [[100, 150], [110, 130]]


@pytest.mark.parametrize(
    "delivery",
    [
        "at_least_once",
        pytest.param("at_most_once", marks=pytest.mark.long),
        pytest.param("exactly_once", marks=pytest.mark.long),
    ],
)
def test_what_a_source_loses_once_more_before_anything_came_is_found_though_it_has_grown_past_that(
    clusters: tuple[EmbeddedCluster, EmbeddedCluster], mirror: MirrorFactory, tmp_path: Path, delivery: str
) -> None:
    source, destination = clusters
    running = copied_before(clusters, mirror, delivery)
    leaders = Leaders(source, tmp_path, with_positions=False)
    leaders.lead(None, keep="first")
    produce(source, "flights", range(100, 150), 1)
    leaders.lead(None, keep="second")
    produce(source, "flights", range(150, 200), 1)
    run_to(running, 200)
    leaders.lead("second")
    running.start()
    end_at(running, 150)
    leaders.lead("first")
    produce(source, "flights", range(300, 400), 1)
    assert values_copied(running, destination, 300) == [*range(200), *range(300, 400)]
    assert [value["lost"] for _, value in notes(destination)] == [[150, 200], [100, 150]]
