"""Connectors of MirrorMaker 2, as Kafka Connect has them, as a topology."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.importing.imports import ONE_WAY, connector, imported, problems_of

SOURCE = connector(
    "Source", "a", "b", topics="orders,payments.*", tasks__max=4, sync__topic__acls__enabled=False
)
CHECKPOINT = connector(
    "Checkpoint", "a", "b", topics="x", tasks__max=1, groups="shop", sync__group__offsets__enabled="true"
)
HEARTBEAT = connector("Heartbeat", "a", "b", emit__heartbeats__enabled="false", tasks__max=9)


@pytest.mark.parametrize(
    "texts",
    [
        [json.dumps(SOURCE), json.dumps(CHECKPOINT), json.dumps(HEARTBEAT)],
        [json.dumps(HEARTBEAT), json.dumps(CHECKPOINT["config"], indent="\t"), json.dumps(SOURCE["config"])],
        [json.dumps([SOURCE, CHECKPOINT, HEARTBEAT], indent=2)],
        [json.dumps({str(each["name"]): {"info": each} for each in (CHECKPOINT, SOURCE, HEARTBEAT)})],
    ],
)
def test_connectors_between_two_clusters_are_a_route(tmp_path: Path, texts: list[str]) -> None:
    outcome = imported(tmp_path, *texts)
    route = outcome.route
    assert (route.name, route.source, route.destination) == ("a-to-b", "a", "b")
    assert route.topics.include == ("orders", "payments.*")
    assert (route.resources.workers, route.sync.acls, route.heartbeats) == (4, False, False)
    assert route.sync.groups is not None
    assert route.sync.groups.include == ("shop",)
    assert len(outcome.notes) == 1
    assert "tasks.max: 4 processes" in outcome.notes[0]


def test_notes_have_the_lines_of_settings(tmp_path: Path) -> None:
    text = json.dumps(connector("Source", "a", "b", replication__factor=3), indent=1)
    (note,) = imported(tmp_path, text).notes
    assert note.startswith(
        f"{text[: text.index('replication')].count(chr(10)) + 1}: a-source-b: replication.factor: left out: "
    )


def test_what_is_told_of_connectors_in_one_line_names_each(tmp_path: Path) -> None:
    both = [connector("Source", *ends, replication__factor=3) for ends in ("ab", "ba")]
    notes = imported(tmp_path, json.dumps(both)).notes
    assert [note.partition(": left out")[0] for note in notes] == [
        f"1: {name}: replication.factor" for name in ("a-source-b", "b-source-a")
    ]


def test_clients_of_a_connector(tmp_path: Path) -> None:
    route = imported(
        tmp_path,
        json.dumps(
            connector(
                "Source",
                "a",
                "b",
                source__consumer__isolation__level="read_uncommitted",
                producer__override__compression__type="lz4",
                exactly__once__support="required",
            )
        ),
    ).route
    assert (route.isolation.value, route.compression.value) == ("read_uncommitted", "lz4")
    assert route.delivery.value == "exactly_once"


def test_what_connect_decides_is_told(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path, json.dumps(connector("Source", "a", "b", exactly__once__support="requested"))
    )
    assert outcome.route.delivery.value == "at_least_once"
    assert "see `delivery`" in outcome.notes[0]


def test_secrets_of_connectors_are_referred_to(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        json.dumps(
            connector(
                "Source",
                "a",
                "b",
                source__cluster__security__protocol="SASL_PLAINTEXT",
                source__cluster__sasl__mechanism="PLAIN",
                source__cluster__sasl__username="u",
                source__cluster__sasl__password="s3cr3t",
            )
        ),
    )
    assert outcome.topology.clusters["a"].security.references["sasl.password"] == "env:A_SASL_PASSWORD"
    assert "s3cr3t" not in outcome.text + "".join(outcome.notes)


def test_several_connectors_between_two_clusters_are_routes_of_their_names(tmp_path: Path) -> None:
    one, other = connector("Source", "a", "b", topics="x"), connector("Source", "a", "b", topics="y")
    other["config"] |= {"name": "other"}  # type: ignore[operator]
    one["name"] = "one"
    outcome = imported(tmp_path, json.dumps([one, other]))
    assert {route.name: route.topics.include for route in outcome.topology.routes} == {
        "one": ("x",),
        "other": ("y",),
    }


def test_connectors_that_copy_the_same_topics_twice_are_refused(tmp_path: Path) -> None:
    one = connector("Source", "a", "b", topics="x.*", name="one")
    other = connector("Source", "a", "b", topics="x1", name="other")
    (problem,) = problems_of(tmp_path, json.dumps([one, other]))
    assert problem.startswith(
        " makes no topology: routes[1].topics: writes the same topics of 'b' as routes[0]"
    )


def test_files_of_both_kinds_make_one_topology(tmp_path: Path) -> None:
    there_and_on = json.dumps(connector("Source", "b", "c"))
    outcome = imported(tmp_path, ONE_WAY.replace("b1:9092", "b:9092"), there_and_on)
    assert [route.name for route in outcome.topology.routes] == ["a-to-b", "b-to-c"]
    assert len(outcome.topology.clusters) == 3


def test_connectors_without_a_flow_and_strange_ones_are_told(tmp_path: Path) -> None:
    strange = {"name": "files", "config": {"connector.class": "FileStreamSink", "file": "x"}}
    outcome = imported(tmp_path, json.dumps([SOURCE, strange, connector("Checkpoint", "b", "a", groups="x")]))
    told = [note.partition(": ")[2] for note in outcome.notes]
    assert "files: connector.class: is no connector of MirrorMaker 2: left out" in told
    missing = "b-checkpoint-a: connector.class: no MirrorSourceConnector is there"
    assert f"{missing}, nothing copies from b to a: left out" in told


def test_a_connector_that_is_not_enabled_is_told(tmp_path: Path) -> None:
    disabled = connector("Source", "b", "a", enabled="false")
    outcome = imported(tmp_path, json.dumps([SOURCE, disabled]))
    assert outcome.route.name == "a-to-b"
    assert "1: b-source-a: enabled: the connector is not enabled: left out" in outcome.notes


def test_what_ends_and_clients_are_told_without_a_use_is_told(tmp_path: Path) -> None:
    more = connector(
        "Source", "a", "b", source__cluster__ssl__provider="x", source__consumer__fetch__max__bytes=1
    )
    told = [note.partition(": ")[2] for note in imported(tmp_path, json.dumps(more)).notes]
    assert told == [
        "a-source-b: source.cluster.ssl.provider: left out: TLS has no such option here",
        "a-source-b: source.consumer.fetch.max.bytes: left out: fetches are sized by round trip and speed: "
        "`resources` bounds them",
    ]


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    other = connector("Source", "b", "a", source__cluster__bootstrap__servers="elsewhere:9092")
    (problem,) = problems_of(tmp_path, json.dumps(SOURCE), json.dumps(other))
    assert problem == (
        "mm2-2.conf:1: b-source-a: source.cluster.bootstrap.servers: says otherwise than "
        f"a-source-b: target.cluster.bootstrap.servers at {tmp_path}/mm2-1.conf:1"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "x",\n "config": {]}', "2: not JSON: Expecting property name enclosed in double quotes"),
        ('{"name": "x"}', " there is no connector in it: nothing has a 'connector.class'"),
        (
            json.dumps(connector("Source", "a", "a")),
            "1: a-source-a: connector.class: leads to the cluster that it comes from",
        ),
        (json.dumps(HEARTBEAT), " nothing is copied from one cluster to another"),
        (
            json.dumps(
                {"connector.class": "MirrorSourceConnector", "source.cluster.bootstrap.servers": "s:1"}
            ),
            "1: connector.class: bootstrap.servers of 'target' is missing",
        ),
        (
            json.dumps([SOURCE["config"], {**SOURCE["config"], "topics": "z"}]),  # type: ignore[dict-item]
            "1: connector.class: of the flows from a to b each needs a name, as of a route",
        ),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, problem: str) -> None:
    assert problems_of(tmp_path, text) == [problem]
