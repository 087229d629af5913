"""Keys whose effect does not exist yet are refused, not ignored."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from mirrormaker.topology.not_built import BUILT_VALUES, CLUSTER_FIELDS, ROUTE_FIELDS
from tests.topology.files import load, load_route, problem_of_route, problems_of
from tests.topology.test_keys import EVERYTHING


def test_what_is_left_at_its_default_is_not_refused(tmp_path: Path) -> None:
    assert load_route(tmp_path, "delivery: at_least_once, on: {source_gap: skip_and_record}, enabled: true")
    assert load_route(tmp_path, "copy: deep")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("failover_group: dr", "failover_group: 'dr' is not supported yet"),
        ("objectives: {audit_window: 10m}", "objectives.audit_window: 600000 is not supported yet"),
        ("failover_group: a", "failover_group: 'a' is not supported yet"),
    ],
)
def test_what_has_no_effect_yet_is_refused_by_its_path(tmp_path: Path, keys: str, told: str) -> None:
    assert problem_of_route(tmp_path, keys) == told


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
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}, c: {{bootstrap: ["c:1"]}}}}
defaults: {{delivery: exactly_once}}
routes:
"""
LINE = '  - {{from: {}, to: {}, topics: {{include: [orders], name: "{{topic}}", merge: true}}}}\n'


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (["ab", "ba"], []),
        (["ab", "ba", "ac", "ca", "bc", "cb"], []),
        (["ab", "bc", "ca"], [(0, "c"), (1, "a"), (2, "b")]),
        (["ab", "ba", "bc", "cb"], [(1, "c"), (2, "a")]),
    ],
)
def test_exactly_once_is_for_what_was_born_at_the_source(
    tmp_path: Path, lines: list[str], refused: list[tuple[int, str]]
) -> None:
    text = MESH.format() + "".join(LINE.format(*line) for line in lines)
    if not refused:
        assert all(route.provenance for route in load(tmp_path, text).routes)
        return
    assert problems_of(tmp_path, text) == [
        f"2: routes[{number}].delivery: 'exactly_once' is not supported yet for what comes from {origin!r}"
        for number, origin in refused
    ]
