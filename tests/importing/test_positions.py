"""Routes that start where MirrorMaker 2 has stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrormaker.importing.positions import OffsetsFile
from mirrormaker.topology.model import ExistingTopics, Start, StartAtOffsets
from tests.importing.imports import ONE_WAY, connector, imported, problems_of

BOTH_WAYS = f"{ONE_WAY}b->a.enabled = true\n"


def record(
    topic: str, partition: int, offset: int | None, *, cluster: str = "a", name: str = "MirrorSourceConnector"
) -> str:
    """A record of the topic of offsets, as commands print it."""
    key = [name, {"cluster": cluster, "partition": partition, "topic": topic}]
    return f"{json.dumps(key)}\t{'' if offset is None else json.dumps({'offset': offset})}\n"


def test_a_route_goes_on_behind_the_last_record_that_was_copied(tmp_path: Path) -> None:
    text = record("x", 1, 41) + record("x", 0, 7) + record("x", 1, 43) + record("y", 0, -1)
    route = imported(tmp_path, ONE_WAY, positions={"offsets": text}).route
    assert route.start == StartAtOffsets(offsets={"x": {0: 8, 1: 44}, "y": {0: 0}})
    assert route.topics.existing is ExistingTopics.APPEND


def test_what_was_taken_back_and_what_is_of_others_counts_for_nothing(tmp_path: Path) -> None:
    text = (
        record("x", 0, 5)
        + record("x", 0, None)
        + '["MirrorHeartbeatConnector",{"sourceClusterAlias":"a","targetClusterAlias":"b"}] {"offset":1}\n'
        + '["MirrorCheckpointConnector",{"group":"g","topic":"x","partition":0}] {"offset":0}\n'
        + record("x", 1, 5)
        + record("b.z", 0, 5)
        + record("x", 2, None)
    )
    route = imported(tmp_path, ONE_WAY, positions={"offsets": text}).route
    assert route.start == StartAtOffsets(offsets={"x": {1: 6}})


def test_offsets_as_connect_tells_them(tmp_path: Path) -> None:
    told = {
        "offsets": [
            {"partition": {"cluster": "a", "partition": 0, "topic": "x"}, "offset": {"offset": 9}},
            {"partition": {"cluster": "a", "partition": 1, "topic": "x"}, "offset": None},
        ]
    }
    route = imported(tmp_path, ONE_WAY, positions={"offsets": json.dumps(told, indent=2)}).route
    assert route.start == StartAtOffsets(offsets={"x": {0: 10}})


def test_each_route_has_those_of_its_source(tmp_path: Path) -> None:
    positions = {"at-b": record("x", 0, 1), "at-a": record("y", 0, 2, cluster="b")}
    forth, back = imported(tmp_path, BOTH_WAYS, positions=positions).topology.routes
    assert forth.start == StartAtOffsets(offsets={"x": {0: 2}})
    assert back.start == StartAtOffsets(offsets={"y": {0: 3}})


def test_routes_of_which_nothing_is_told_start_anew(tmp_path: Path) -> None:
    outcome = imported(tmp_path, BOTH_WAYS, positions={"offsets": record("x", 0, 1)})
    assert outcome.topology.routes[1].start is Start.EARLIEST
    assert outcome.topology.routes[1].topics.existing is ExistingTopics.REFUSE
    assert outcome.notes == ["5: b->a.enabled: no positions of its topics are told: its route starts anew"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "offsets: there is no position of a MirrorSourceConnector in it"),
        ('["x",{}] {"offset":1}', "offsets: there is no position of a MirrorSourceConnector in it"),
        (record("x", 0, 1) + "oops\n", "offsets:2: not JSON, and no position: Expecting value"),
    ],
)
def test_what_is_no_position_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert problems_of(tmp_path, ONE_WAY, positions={"offsets": text}) == [problem]


def test_positions_are_those_of_the_connector_that_has_the_name(tmp_path: Path) -> None:
    """What had another name before is left in the topic, and may be printed last."""
    text = "".join(
        record("x", 0, offset, name=name) for name, offset in (("new", 5), ("old", 900), ("older", 3))
    )
    files = json.dumps([connector("Source", "a", "b", name="new")])
    outcome = imported(tmp_path, files, positions={"offsets": text})
    assert outcome.route.start == StartAtOffsets(offsets={"x": {0: 6}})
    assert [note.removeprefix(f"{tmp_path}/") for note in outcome.notes] == [
        f"offsets:{line}: left out: positions of {name!r}, and no connector here is called so"
        for line, name in ((2, "old"), (3, "older"))
    ]


def test_connectors_between_the_same_clusters_have_positions_of_their_own(tmp_path: Path) -> None:
    flows = [connector("Source", "a", "b", name=name, topics=name) for name in ("x", "y")]
    text = "".join(record(topic, 0, 1, name=name) for name in "xy" for topic in "xy")
    routes = imported(tmp_path, json.dumps(flows), positions={"offsets": text}).topology.routes
    assert [route.start for route in routes] == [
        StartAtOffsets(offsets={"x": {0: 2}}),
        StartAtOffsets(offsets={"y": {0: 2}}),
    ]


def test_a_connector_that_is_posted_has_the_positions_of_the_name_beside_it(tmp_path: Path) -> None:
    text = record("x", 0, 5, name="a-source-b") + record("x", 0, 9, name="other")
    posted = json.dumps(connector("Source", "a", "b"))
    route = imported(tmp_path, posted, positions={"offsets": text}).route
    assert route.start == StartAtOffsets(offsets={"x": {0: 6}})


def test_positions_of_several_connectors_are_refused_where_it_is_not_told_which_counts(
    tmp_path: Path,
) -> None:
    text = record("x", 0, 5, name="one") + record("x", 0, 9, name="other")
    nameless = json.dumps(connector("Source", "a", "b")["config"])
    (problem,) = problems_of(tmp_path, nameless, positions={"offsets": text})
    assert problem == (
        "1: connector.class: positions of 'one' and 'other' are told, and not which of them it is"
    )


FAN_OUT = """\
clusters = a, b, c
a.bootstrap.servers = a1:9092
b.bootstrap.servers = b1:9092
c.bootstrap.servers = c1:9092
a->b.enabled = true
a->c.enabled = true
"""


def test_positions_are_those_of_the_target_that_has_them(tmp_path: Path) -> None:
    positions = {"b=at-b": record("x", 0, 1), "c=at-c": record("x", 0, 2)}
    to_b, to_c = imported(tmp_path, FAN_OUT, positions=positions).topology.routes
    assert to_b.start == StartAtOffsets(offsets={"x": {0: 2}})
    assert to_c.start == StartAtOffsets(offsets={"x": {0: 3}})


def test_positions_that_could_be_of_several_flows_are_refused(tmp_path: Path) -> None:
    assert problems_of(tmp_path, FAN_OUT, positions={"offsets": record("x", 0, 1)}) == [
        f"{line}: a->{to}.enabled: several flows leave 'a': say whose positions they are, TARGET=OFFSETS"
        for line, to in ((5, "b"), (6, "c"))
    ]


def test_a_path_may_have_any_sign(tmp_path: Path) -> None:
    assert OffsetsFile.parse("./b=c") == OffsetsFile(Path("b=c"))
    assert OffsetsFile.parse("b=c=d") == OffsetsFile(Path("c=d"), "b")


@pytest.mark.parametrize(("name", "cluster"), [("d=offsets", "a"), ("offsets", "x"), ("a=offsets", "a")])
def test_positions_of_no_flow_are_refused(tmp_path: Path, name: str, cluster: str) -> None:
    text = record("x", 0, 1, cluster=cluster)
    assert problems_of(tmp_path, ONE_WAY, positions={name: text}) == [
        f"offsets: tells of {cluster}: no flow leads from there to where it was kept"
    ]


def test_what_else_a_file_tells_is_no_matter(tmp_path: Path) -> None:
    text = record("x", 0, 1, cluster="elsewhere") + record("x", 0, 2)
    route = imported(tmp_path, ONE_WAY, positions={"offsets": text}).route
    assert route.start == StartAtOffsets(offsets={"x": {0: 3}})
