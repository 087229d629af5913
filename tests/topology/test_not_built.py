"""Keys whose effect does not exist yet are refused, not ignored."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from mirrormaker.topology.not_built import BUILT_VALUES, CLUSTER_FIELDS, ROUTE_FIELDS
from tests.topology.files import CLUSTERS, load, load_route, problems_of
from tests.topology.test_keys import EVERYTHING


def test_what_is_left_at_its_default_is_not_refused(tmp_path: Path) -> None:
    assert load_route(tmp_path, "delivery: at_least_once, on: {source_gap: skip_and_record}, enabled: true")
    assert load_route(tmp_path, "copy: deep")


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("{jdbc: {url: 'jdbc:x', table: t}}", "sinks[0].jdbc: is not supported yet"),
        ("{delta: x}", "sinks[0].delta: is not supported yet"),
        ("{iceberg: x.y}", "sinks[0].iceberg: is not supported yet"),
    ],
)
def test_sinks_without_effect_are_refused(tmp_path: Path, sink: str, told: str) -> None:
    load_of = f"{{name: p, cluster: a, topics: {{include: [x]}}, sinks: [{sink}]}}"
    text = f"{CLUSTERS}routes: []\npipelines:\n  - {load_of}\n"
    assert problems_of(tmp_path, text) == [f"4: pipelines[0].{told}"]


@pytest.mark.usefixtures("all_built")
def test_the_table_names_fields_of_the_model(tmp_path: Path) -> None:
    topology = load(tmp_path, EVERYTHING)
    for fields, part in (
        (CLUSTER_FIELDS, next(iter(topology.clusters.values()))),
        (ROUTE_FIELDS, topology.routes[0]),
    ):
        for field in fields:
            attrgetter(field)(part)
    assert set(BUILT_VALUES) <= {*CLUSTER_FIELDS, *ROUTE_FIELDS}


MESH = """\
clusters: {a: {bootstrap: ["a:1"]}, b: {bootstrap: ["b:1"]}, c: {bootstrap: ["c:1"]}}
defaults: {delivery: exactly_once}
routes:
"""
LINE = '  - {{from: {}, to: {}, topics: {{include: [orders], name: "{{topic}}", merge: true}}}}\n'


@pytest.mark.parametrize("lines", [["ab", "ba"], ["ab", "bc", "ca"], ["ab", "ba", "bc", "cb"]])
def test_exactly_once_is_also_for_what_was_born_elsewhere(tmp_path: Path, lines: list[str]) -> None:
    text = MESH + "".join(LINE.format(*line) for line in lines)
    assert all(route.provenance for route in load(tmp_path, text).routes)
