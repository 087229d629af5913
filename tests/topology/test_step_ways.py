"""Topics of steps in meshes, of which some clusters get less."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.topology.loader import parse_topology
from mirrormaker.topology.step_ways import diverging_steps

STEP = "transforms: [{route: {to: late, when: {key_prefix: x}}}]"
EACH_TO_EACH = ["ab", "ac", "ba", "bc", "ca", "cb"]


def told(steps: dict[str, str], lines: list[str], include: str = ".*") -> list[str]:
    """`lines`: which cluster leads to which; `steps`: what some of these say."""
    routes = "".join(
        f"  - {{from: {line[0]}, to: {line[1]}, topics: {{include: ['{include}'], name: '{{topic}}', "
        f"merge: true}}, {steps.get(line, 'enabled: true')}}}\n"
        for line in lines
    )
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:1']}}\n" for name in "abcd")
    topology = parse_topology(f"clusters:\n{clusters}routes:\n{routes}", Path("t.yaml"))
    return [f"{each.path}: {each.message}" for each in diverging_steps(topology.routes)]


def test_a_step_that_one_way_of_a_mesh_has_alone_is_told() -> None:
    (one,) = told({"ab": STEP}, EACH_TO_EACH)
    assert one == (
        "routes[0].transforms[0].route: 'late' goes on from 'b' to 'c' without what the step sends there of "
        "'x' of 'a': 'c' has that by another way, where no route has the same step"
    )


@pytest.mark.parametrize(
    ("steps", "lines", "include"),
    [
        ({"ab": STEP, "ac": STEP}, EACH_TO_EACH, ".*"),
        ({"ab": STEP}, EACH_TO_EACH, "[^l].*"),
        ({"ab": STEP}, ["ab", "ba", "bc", "cb"], ".*"),
        ({"ab": STEP}, ["ab", "ba"], ".*"),
        ({"ab": STEP.replace("late", "'{topic}'")}, EACH_TO_EACH, ".*"),
        ({}, EACH_TO_EACH, ".*"),
    ],
)
def test_a_topic_of_a_step_that_has_the_same_everywhere_or_stays_is_not(
    steps: dict[str, str], lines: list[str], include: str
) -> None:
    assert told(steps, lines, include) == []


def test_another_condition_or_another_topic_of_the_other_way_is_another_step() -> None:
    for other in (STEP.replace("prefix: x", "prefix: z"), STEP.replace("late", "later")):
        assert len(told({"ab": STEP, "ac": other}, EACH_TO_EACH)) == 2


def test_a_step_is_told_for_what_comes_through_its_source() -> None:
    lines = ["da", "ad", *EACH_TO_EACH, "dc", "cd"]
    (one,) = told({"ab": STEP}, lines)
    assert "of 'a'" in one
    assert told({"ab": STEP, "ac": STEP}, lines) != []
