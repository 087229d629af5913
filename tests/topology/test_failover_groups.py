"""Which routes can switch their direction together."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.topology.failover_groups import failover_groups, one_way_routes, return_route
from tests.topology.files import load, problems_of

CLUSTERS = 'clusters: {a: {bootstrap: ["a:1"]}, b: {bootstrap: ["b:1"]}, c: {bootstrap: ["c:1"]}}\n'
FORTH = '  - {name: forth, from: a, to: b, failover_group: g, topics: {include: [x], name: "{topic}"}}\n'
BACK = (
    "  - {name: back, from: b, to: a, failover_group: g, enabled: false,"
    ' topics: {include: [x], name: "{topic}"}}\n'
)
OTHER = FORTH.replace("forth", "other").replace("[x]", "[y]").replace("to: b", "to: b, enabled: false")


def test_a_group_knows_its_home_and_the_way_back(tmp_path: Path) -> None:
    topology = load(tmp_path, f"{CLUSTERS}routes:\n{FORTH}{BACK}")
    (group,) = failover_groups(topology).values()
    assert (group.home, group.standby) == ("a", "b")
    assert [route.name for route in group.leaving(group.standby)] == ["back"]
    back = return_route(group.leaving(group.home)[0], topology.routes)
    assert back is not None
    assert back.name == "back"
    assert all(route.provenance for route in topology.routes)


@pytest.mark.parametrize(
    ("routes", "told"),
    [
        (BACK, "no route of the group 'g' is enabled"),
        (FORTH + BACK.replace("enabled: false", "enabled: true"), "say 'enabled: false'"),
        (FORTH + BACK.replace("from: b, to: a", "from: b, to: c"), "this route leads elsewhere"),
        (FORTH + BACK.replace("include: [x]", "include: [y]"), "brings the same topics back"),
        (FORTH + BACK.replace('"{topic}"', '"{cluster}.{topic}"'), "keeps names"),
        (
            FORTH + BACK.replace("enabled: false", "enabled: false, provenance: false"),
            "routes[1].provenance: a route that switches its direction needs it",
        ),
        (
            FORTH + OTHER + BACK,
            "all are enabled, or none",
        ),
    ],
)
def test_what_cannot_switch_together_is_refused(tmp_path: Path, routes: str, told: str) -> None:
    assert any(told in problem for problem in problems_of(tmp_path, f"{CLUSTERS}routes:\n{routes}"))


def test_a_route_of_a_group_without_a_way_back_is_doubted(tmp_path: Path) -> None:
    (found,) = one_way_routes(load(tmp_path, f"{CLUSTERS}routes:\n{FORTH}").routes)
    assert found.path == "routes[0].failover_group"
    assert (
        "no route of the group 'g' leads back: once it is switched, nothing is copied to 'a'" in found.message
    )
    assert not list(one_way_routes(load(tmp_path, f"{CLUSTERS}routes:\n{FORTH}{BACK}").routes))
