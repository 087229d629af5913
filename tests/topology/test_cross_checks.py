"""What does not fit together across the parts of a topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.reconcile.routes import work_of
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import ClusterName
from tests.topology.files import CLUSTERS, load, load_route, problem_of_route, problems_of


@pytest.mark.parametrize("other", ["localhost", "LOCALHOST", "127.0.0.1", "127.0.1.1", "[::1]"])
def test_one_address_written_in_two_ways_is_one_cluster(tmp_path: Path, other: str) -> None:
    text = f"clusters:\n  a: {{embedded: {{port: 9092}}}}\n  b: {{bootstrap: ['{other}:9092']}}\n"
    (problem,) = problems_of(tmp_path, text)
    assert problem.startswith("3: clusters.b.bootstrap: ")
    assert problem.endswith(":9092 belongs to the cluster 'a' already")


def test_names_of_hosts_are_the_same_in_any_case_and_ports_are_not(tmp_path: Path) -> None:
    text = "clusters:\n  a: {bootstrap: ['Kafka.example:9092']}\n  b: {bootstrap: ['kafka.example.:9092']}\n"
    assert len(problems_of(tmp_path, text)) == 1
    assert load(tmp_path, text.replace("example.:9092", "example.:9093"))


def test_two_clusters_have_two_ids(tmp_path: Path) -> None:
    text = """\
clusters:
  a: {bootstrap: ["a:1"], cluster_id: x}
  b: {bootstrap: ["b:1"], cluster_id: x}
"""
    assert problems_of(tmp_path, text) == [
        "3: clusters.b.cluster_id: the cluster 'a' has this id: both names mean one cluster"
    ]


def test_two_clusters_have_two_places_in_zookeeper(tmp_path: Path) -> None:
    text = """\
clusters:
  a: {bootstrap: ["a:1"], zookeeper: "zk:2181/x"}
  b: {bootstrap: ["b:1"], zookeeper: "zk:2181/x"}
  c: {bootstrap: ["c:1"], zookeeper: "zk:2181/c"}
"""
    assert problems_of(tmp_path, text) == [
        "3: clusters.b.zookeeper: belongs to the cluster 'a' already: each has a chroot of its own"
    ]


def test_topics_of_a_cluster_must_be_possible_there(tmp_path: Path) -> None:
    text = """\
clusters:
  a:
    embedded: {port: 9092, brokers: 2}
    topics:
      a b: {}
      __consumer_offsets: {}
      wide: {replication: 3}
      none: {partitions: 0, config: {x: null}}
"""
    assert problems_of(tmp_path, text) == [
        "5: clusters.a.topics.a b: 'a b' is not a topic's name: up to 249 letters, digits, '.', '_' and '-'",
        "6: clusters.a.topics.__consumer_offsets: clusters make topics with such names themselves",
        "7: clusters.a.topics.wide.replication: 3 replicas need as many nodes, and there are 2",
        "8: clusters.a.topics.none.partitions: 0 is not between 1 and 100000",
        "8: clusters.a.topics.none.config.x: expected the value of a setting, found nothing",
    ]


def test_links_lead_between_clusters_that_are_there_and_are_said_once(tmp_path: Path) -> None:
    text = (
        CLUSTERS
        + """\
links:
  - {from: a, to: b, bytes_per_second: 1}
  - {from: b, to: a, bytes_per_second: 1}
  - {from: a, to: b, bytes_per_second: 2}
  - {from: a, to: bb, bytes_per_second: 2}
  - {from: c, to: c, bytes_per_second: 2}
  - {from: a, to: c}
  - {from: b, to: c, bytes_per_second: 1}
routes:
  - {from: a, to: b, topics: {include: [x]}}
  - {from: b, to: a, topics: {include: [x]}}
  - {from: a, to: c, topics: {include: [x]}}
"""
    )
    assert problems_of(tmp_path, text) == [
        "5: links[2]: links[0] is from 'a' to 'b' too",
        "6: links[3].to: there is no cluster 'bb'; did you mean 'b'?",
        "7: links[4].to: a link must lead to another cluster than it comes from",
        "8: links[5]: limits nothing: say 'bytes_per_second' or 'windows'",
        "9: links[6]: no route leads from 'b' to 'c'",
    ]


@pytest.mark.parametrize("who", [(True, True), (True, False), (False, True)])
def test_routes_write_one_topic_where_all_of_them_say_so(tmp_path: Path, who: tuple[bool, bool]) -> None:
    routes = "".join(
        f"  - {{from: {source}, to: c, "
        f"topics: {{include: [x], name: '{{topic}}', merge: {str(merge).lower()}}}}}\n"
        for source, merge in zip("ab", who, strict=True)
    )
    text = f"{CLUSTERS}routes:\n{routes}"
    if all(who):
        assert load(tmp_path, text)
    else:
        assert problems_of(tmp_path, text) == [
            "4: routes[1].topics: writes the same topics of 'c' as routes[0]: "
            "use {cluster} in 'name', or say 'merge: true' in both"
        ]


def test_a_route_that_does_not_run_takes_no_topic_from_another(tmp_path: Path) -> None:
    routes = "".join(
        f"  - {{from: a, to: c, name: {name}, enabled: {enabled}, topics: {{include: [x]}}}}\n"
        for name, enabled in (("old", "false"), ("new", "true"))
    )
    assert load(tmp_path, f"{CLUSTERS}routes:\n{routes}")
    assert len(problems_of(tmp_path, f"{CLUSTERS}routes:\n{routes}".replace("false", "true"))) == 1


def halves_of_one_topic(*more: str) -> str:
    """Routes from `a` to `c`, each with what it says besides."""
    routes = "".join(
        f"  - {{from: a, to: c, name: half-{number}, topics: {{include: [x], merge: true}}, {keys}}}\n"
        for number, keys in enumerate(more)
    )
    return f"{CLUSTERS}routes:\n{routes}"


def test_routes_that_are_exactly_once_do_not_copy_one_topic_into_one(tmp_path: Path) -> None:
    exact = "delivery: exactly_once"
    keep, drop = (f"filters: [{{{action}: {{key_prefix: a}}}}]" for action in ("keep", "drop"))
    assert problems_of(tmp_path, halves_of_one_topic(f"{exact}, {keep}", f"{exact}, {drop}")) == [
        "4: routes[1].topics: writes the same topics of 'c' as routes[0], from the same topics, both "
        "'exactly_once': they would have one position there; make them one route, "
        "or use another 'name' or 'delivery'"
    ]
    assert load(tmp_path, halves_of_one_topic(f"{exact}, {keep}", drop))
    late = "transforms: [{route: {to: late}}]"
    apart = halves_of_one_topic(f"{exact}, {late}", f"{exact}, {late}").replace(
        "topics: {include: [x], merge: true}", "topics: {include: [x], merge: true, name: '{topic}'}", 1
    )
    assert load(tmp_path, apart)
    assert load(tmp_path, halves_of_one_topic(exact, exact).replace("from: a", "from: b", 1))


def steps_of_two_routes(first: str, second: str, *, merge: bool = False) -> str:
    routes = "".join(
        f"  - {{from: {source}, to: c, topics: {{include: [x.*], merge: {str(merge).lower()}}}, "
        f"transforms: [{{{step}}}]}}\n"
        for source, step in zip("ab", (first, second), strict=True)
    )
    return f"{CLUSTERS}routes:\n{routes}"


def test_steps_of_two_routes_that_write_one_topic_are_refused_unless_all_say_so(tmp_path: Path) -> None:
    late = "route: {to: late}"
    assert problems_of(tmp_path, steps_of_two_routes(late, late)) == [
        "4: routes[1].transforms[0].route: writes 'late' of 'c' as routes[0] does: "
        "give each its own, or say 'merge: true' in the topics of both"
    ]
    named = "route: {to: '{topic}-late'}"
    assert problems_of(tmp_path, steps_of_two_routes(named, named)) == [
        "4: routes[1].transforms[0].route: writes the same topics of 'c' as routes[0]: "
        "use {cluster} in 'name', or say 'merge: true' in both"
    ]
    assert load(tmp_path, steps_of_two_routes(late, late, merge=True))
    assert load(tmp_path, steps_of_two_routes(named, "route: {to: '{cluster}.{topic}-late'}"))
    assert load(tmp_path, steps_of_two_routes(f"{named}, topics: [x1]", f"{named}, topics: [x2]"))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            "copy: shallow, compression: zstd",
            "compression: decodes batches, and the route says 'copy: shallow'",
        ),
        (
            "copy: shallow, batch: {linger_ms: 5}",
            "batch.linger_ms: decodes batches, and the route says 'copy: shallow'",
        ),
        (
            "copy: shallow, filters: [{drop: {key_prefix: a}}]",
            "filters: decodes batches, and the route says 'copy: shallow'",
        ),
        (
            "topics: {include: [x], partitions: round_robin}, copy: shallow",
            "topics.partitions: decodes batches, and the route says 'copy: shallow'",
        ),
        (
            "topics: {include: [x], partitions: key}, sync: {groups: {}}",
            "sync.groups: positions cannot be carried over where 'topics.partitions' is not 'same'",
        ),
        (
            "topics: {include: [x], merge: true}, sync: {groups: {}}",
            "sync.groups: positions cannot be carried over into topics that several routes write",
        ),
        ("membership: zookeeper", "membership: the cluster 'a' does not say where its 'zookeeper' is"),
        (
            "membership: zookeeper, delivery: exactly_once",
            "delivery: 'exactly_once' needs a group at the source's coordinator: see 'membership'",
        ),
        (
            "resources: {bytes_per_second: 10, catch_up_bytes_per_second: 11}",
            "resources.catch_up_bytes_per_second: exceeds bytes_per_second, which is 10",
        ),
        (
            "buckets: 4, resources: {workers: 5}",
            "resources.workers: exceeds 'buckets', which is 4: the others would have nothing to do",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_told(tmp_path: Path, keys: str, told: str) -> None:
    assert problem_of_route(tmp_path, keys) == told


def test_an_embedded_source_need_not_say_where_its_zookeeper_is(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(
        """\
clusters: {a: {embedded: {port: 19092}}, b: {bootstrap: ["b:1"]}}
routes: [{from: a, to: b, topics: {include: [x]}, membership: zookeeper}]
"""
    )
    embedded = load_topology(file).clusters[ClusterName("a")].embedded
    assert embedded is not None
    assert embedded.zookeeper_directory == tmp_path.resolve() / "data" / "zookeeper"


def test_a_catch_up_budget_may_use_what_a_window_lets_pass(tmp_path: Path) -> None:
    night = "windows: [{from: '22:00', to: '06:00', bytes_per_second: 20}]"
    limits = f"bytes_per_second: 10, {night}"
    assert load_route(tmp_path, f"resources: {{{limits}, catch_up_bytes_per_second: 20}}")
    told = problem_of_route(tmp_path, f"resources: {{{limits}, catch_up_bytes_per_second: 21}}")
    assert told == "resources.catch_up_bytes_per_second: exceeds bytes_per_second, which is 20"


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
@pytest.mark.parametrize(
    "keys",
    [
        "topics: {include: [x], partitions: round_robin}",
        "topics: {include: [x], merge: true}",
        "copy: shallow",
        "copy: deep, compression: zstd",
        "provenance: true",
        "isolation: read_uncommitted",
        "resources: {workers: 16}",
    ],
)
def test_every_delivery_goes_with_everything_else(tmp_path: Path, delivery: str, keys: str) -> None:
    assert load_route(tmp_path, f"{keys}, delivery: {delivery}")


def test_a_mesh_of_many_clusters_is_checked_in_no_time(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(25)]
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:9092']}}\n" for name in names)
    routes = "".join(
        f"  - {{from: {source}, to: {destination}, "
        "topics: {include: [.*], name: '{topic}', merge: true}}\n"
        for source in names
        for destination in names
        if source != destination
    )
    topology = load(tmp_path, f"clusters:\n{clusters}routes:\n{routes}")
    assert len(topology.routes) == 600
    assert all(route.provenance for route in topology.routes)


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


def test_a_pattern_that_is_none_hides_nothing_of_the_other_routes_and_has_nobody_blamed(
    tmp_path: Path,
) -> None:
    """Circles, and provenance that follows from them, are known of all other routes all the same."""
    group = 'failover_group: g, topics: {include: [orders], name: "{topic}"}'
    text = f"""\
{CLUSTERS}routes:
  - {{from: a, to: b, {group}}}
  - {{from: b, to: a, enabled: false, {group}}}
  - {{from: a, to: c, topics: {{include: ["x("]}}}}
  - {{from: b, to: c, topics: {{include: [".*"]}}}}
  - {{from: c, to: b, topics: {{include: [".*"]}}}}
  - {{from: b, to: c, name: twice, topics: {{include: [".*"]}}}}
"""
    found = [problem.split(": ", 2)[:2] for problem in problems_of(tmp_path, text)]
    assert found == [
        ["5", "routes[2].topics.include[0]"],
        ["6", "routes[3].topics"],
        ["7", "routes[4].topics"],
        ["8", "routes[5].topics"],
    ]
    of_the_group = text.replace("[orders]", '["orders("]', 1).split("  - {from: a, to: c")[0]
    assert not [problem for problem in problems_of(tmp_path, of_the_group) if "provenance" in problem]


RING = """\
routes:
  - {from: a, to: b, topics: {include: [orders, "p.*"], name: "{topic}"}, sync: {groups: {}}}
  - {from: b, to: c, topics: {include: [".*"], name: "{topic}"}}
  - {from: c, to: a, topics: {include: [".*"], name: "{topic}"%s}}
"""


def test_groups_are_not_carried_along_a_ring(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, CLUSTERS + RING % "")
    where, _, told = problem.partition(": positions of topic 'orders' ")
    assert where == "3: routes[0].sync.groups"
    assert "what is written at 'b' comes back by b -> c -> a alone" in told
    assert "a route from 'b' to 'a' would" in told
    assert load(tmp_path, CLUSTERS + (RING % "").replace(", sync: {groups: {}}", ""))
    rests = (RING % "").replace("from: c", "enabled: false, from: c")
    assert load(tmp_path, CLUSTERS + rests), "nothing comes round"


@pytest.mark.parametrize(("taken", "refused"), [(".*", None), ("orders", "'px'"), ("p.*", "'orders'")])
def test_groups_are_carried_where_another_route_leads_straight_back(
    tmp_path: Path, taken: str, refused: str | None
) -> None:
    back = f'  - {{from: b, to: a, topics: {{include: ["{taken}"], name: "{{topic}}", merge: true}}}}\n'
    text = CLUSTERS + RING % ", merge: true" + back
    if refused is None:
        assert load(tmp_path, text)
    else:
        (problem,) = problems_of(tmp_path, text)
        assert f"routes[0].sync.groups: positions of topic {refused}" in problem


def test_groups_are_carried_where_a_route_beside_a_group_without_one_leads_straight_back(
    tmp_path: Path,
) -> None:
    there, back = ["a", "b"], ["b", "a"]
    line = '  - {{from: {}, to: {}, topics: {{include: [orders], name: "{{topic}}"}}{}}}\n'
    text = (
        "routes:\n" + line.format(*there, ", failover_group: g, sync: {groups: {}}") + line.format(*back, "")
    )
    topology = load(tmp_path, CLUSTERS + text)
    work = work_of(topology)[topology.routes[0].name]
    assert [(way.source, way.destination) for way in work.back] == [tuple(back)]
    assert work.brings_back("orders")
