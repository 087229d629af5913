"""Topology files, good and bad: every complaint has its line and path, and all of them come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import ConfigurationError
from broker.types import HostPort
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Compression, CopyMode, Delivery, Resources, Topology

CLUSTERS = """\
clusters:
  jfk: {embedded: {brokers: 2, port: 19092}}
  aggregate: {bootstrap: ["10.0.0.1:9092", "[::1]:9093"], zookeeper: "zk:2181/aggregate"}
"""
ROUTE = "  - {from: jfk, to: aggregate, topics: {include: ['flights.*']}}\n"


def load(folder: Path, text: str) -> Topology:
    file = folder / "topology.yaml"
    file.write_text(text)
    return load_topology(file)


def problems_of(folder: Path, text: str) -> list[str]:
    """Complaints without the folder's name: `LINE: PATH: MESSAGE`."""
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text)
    return [
        problem.removeprefix(f"{folder / 'topology.yaml'}").removeprefix(":")
        for problem in caught.value.problems
    ]


def test_a_whole_file_is_read_into_the_model(tmp_path: Path) -> None:
    topology = load(
        tmp_path,
        CLUSTERS
        + """\
routes:
  - from: jfk
    to: aggregate
    name: eastward
    topics: {include: ["flights.*", planes], exclude: [flights-test], name: "{topic}.of.{cluster}"}
    delivery: at_least_once
    copy: deep
    compression: preserve
    buckets: 4
    commit_interval_ms: 250
    refresh_interval_ms: 700
    resources: {buffer_bytes: 1000000, partition_buffer_bytes: 500000, requests_in_flight: 7}
pipelines: []
data_dir: state
""",
    )
    jfk, aggregate = topology.clusters.values()
    assert jfk.bootstrap == (HostPort("127.0.0.1", 19092), HostPort("127.0.0.1", 19093))
    assert aggregate.bootstrap == (HostPort("10.0.0.1", 9092), HostPort("::1", 9093))
    assert aggregate.zookeeper == "zk:2181/aggregate"
    assert topology.data_dir == tmp_path / "state"
    (route,) = topology.routes
    assert (route.name, route.source, route.destination) == ("eastward", "jfk", "aggregate")
    assert route.topics.include == ("flights.*", "planes")
    assert route.topics.exclude == ("flights-test",)
    assert route.topics.name == "{topic}.of.{cluster}"
    assert (route.delivery, route.copy) == (Delivery.AT_LEAST_ONCE, CopyMode.DEEP)
    assert route.compression is Compression.PRESERVE
    assert (route.buckets, route.commit_interval_ms, route.refresh_interval_ms) == (4, 250, 700)
    assert route.resources == Resources(
        buffer_bytes=1_000_000, partition_buffer_bytes=500_000, requests_in_flight=7
    )
    assert route.group == "mirror/eastward"


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    topology = load(tmp_path, CLUSTERS + "routes:\n" + ROUTE)
    (route,) = topology.routes
    assert route.name == "jfk-to-aggregate"
    assert route.topics.name == "{cluster}.{topic}"
    assert route.resources == Resources()
    assert topology.data_dir == tmp_path / "data"


BAD_ROUTES = {
    "an unknown cluster": (
        "{from: jfc, to: aggregate, topics: {include: [a]}}",
        ["5: routes[0].from: there is no cluster 'jfc'; did you mean 'jfk'?"],
    ),
    "a route to itself": (
        "{from: jfk, to: jfk, topics: {include: [a]}}",
        ["5: routes[0].to: a route must lead to another cluster than it comes from"],
    ),
    "a missing key": (
        "{from: jfk, topics: {include: [a]}}",
        ["5: routes[0]: the key 'to' is missing"],
    ),
    "a missing key beside what only the whole file shows to be wrong": (
        """{from: jfc,
       topics: {exclude: ['[']}}""",
        [
            "5: routes[0]: the key 'to' is missing",
            "5: routes[0].from: there is no cluster 'jfc'; did you mean 'jfk'?",
            "6: routes[0].topics: the key 'include' is missing",
            "6: routes[0].topics.exclude[0]: '[' is not a regular expression: "
            "unterminated character set at position 0",
        ],
    ),
    "a misspelt key": (
        "{from: jfk, to: aggregate, topics: {includes: [a]}}",
        [
            "5: routes[0].topics: the key 'include' is missing",
            "5: routes[0].topics.includes: unknown key; did you mean 'include'?",
        ],
    ),
    "a key with nothing like it": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, zzz: 1}",
        ["5: routes[0].zzz: unknown key"],
    ),
    "keys that belong into a mapping of the route": (
        """{from: jfk, to: aggregate, topics: {include: [a]}, workers: 2,
       on_record_error: park,
       bytes_per_second: 1}""",
        [
            "5: routes[0].workers: unknown key; did you mean 'resources.workers'?",
            "6: routes[0].on_record_error: unknown key; did you mean 'on.record_error'?",
            "7: routes[0].bytes_per_second: unknown key; "
            "did you mean 'resources.bytes_per_second' or 'simulate.bytes_per_second'?",
        ],
    ),
    "a wrong type": (
        "{from: 5, to: [aggregate], topics: {include: a}}",
        [
            "5: routes[0].from: expected text, found a whole number (5)",
            "5: routes[0].to: expected text, found a list",
            "5: routes[0].topics.include: expected a list, found text (a)",
        ],
    ),
    "a list item of the wrong type": (
        "{from: jfk, to: aggregate, topics: {include: [a, 1.5, null]}}",
        [
            "5: routes[0].topics.include[1]: expected text, found a number with a fraction (1.5)",
            "5: routes[0].topics.include[2]: expected text, found nothing",
        ],
    ),
    "no topics": (
        "{from: jfk, to: aggregate, topics: {include: []}}",
        ["5: routes[0].topics.include: names no topics"],
    ),
    "a broken pattern": (
        "{from: jfk, to: aggregate, topics: {include: ['(a'], exclude: ['*']}}",
        [
            "5: routes[0].topics.include[0]: '(a' is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
            "5: routes[0].topics.exclude[0]: '*' is not a regular expression: "
            "nothing to repeat at position 0",
        ],
    ),
    "an unknown field in the name": (
        "{from: jfk, to: aggregate, topics: {include: [a], name: '{site}.{topic}'}}",
        ["5: routes[0].topics.name: unknown field {site}: there are {cluster} and {topic}"],
    ),
    "a name without the topic": (
        "{from: jfk, to: aggregate, topics: {include: [a], name: '{cluster}'}}",
        ["5: routes[0].topics.name: lacks {topic}: all topics would get the same name"],
    ),
    "a name that no topic may have": (
        "{from: jfk, to: aggregate, topics: {include: [a], name: '{cluster}/{topic}'}}",
        ["5: routes[0].topics.name: topic names hold only letters, digits, '.', '_' and '-'"],
    ),
    "a torn template": (
        "{from: jfk, to: aggregate, topics: {include: [a], name: '{topic'}}",
        ["5: routes[0].topics.name: not a template: expected '}' before end of string"],
    ),
    "a delivery that is not there": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, delivery: twice}",
        [
            "5: routes[0].delivery: 'twice' is not one of at_least_once, exactly_once, at_most_once",
        ],
    ),
    "a copy mode that is none": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, copy: flat}",
        ["5: routes[0].copy: 'flat' is not one of auto, shallow, deep"],
    ),
    "a number out of bounds": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, buckets: 0}",
        ["5: routes[0].buckets: 0 is not between 1 and 1024"],
    ),
    "a partition buffer beyond the whole": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, "
        "resources: {buffer_bytes: 5000, partition_buffer_bytes: 6000}}",
        ["5: routes[0].resources.partition_buffer_bytes: exceeds buffer_bytes, which is 5000"],
    ),
    "an illegal name": (
        "{from: jfk, to: aggregate, topics: {include: [a]}, name: 'a b'}",
        [
            "5: routes[0].name: 'a b' is not a name: up to 200 letters, digits, '.', '_' and '-', "
            "no sign first"
        ],
    ),
    "a repetition beyond all numbers": (
        "{from: jfk, to: aggregate, topics: {include: ['a{9999999999}']}}",
        [
            "5: routes[0].topics.include[0]: 'a{9999999999}' is not a regular expression: "
            "the repetition number is too large"
        ],
    ),
    "a pattern nested too deeply": (
        f"{{from: jfk, to: aggregate, topics: {{include: ['{'(' * 3000}x{')' * 3000}']}}}}",
        ["5: routes[0].topics.include[0]: not a regular expression: nested too deeply"],
    ),
    "a pattern that will mean something else": (
        "{from: jfk, to: aggregate, topics: {include: ['[[a]x']}}",
        [
            "5: routes[0].topics.include[0]: '[[a]x' is not a regular expression: "
            "Possible nested set at position 1"
        ],
    ),
    "a number of thousands of digits": (
        f"{{from: jfk, to: aggregate, topics: {{include: [a]}}, buckets: {'9' * 5000}}}",
        [f"5: routes[0].buckets: {'9' * 60}... is not between 1 and 1024"],
    ),
    "a route that is no mapping": (
        "jfk",
        ["5: routes[0]: expected a mapping, found text (jfk)"],
    ),
}


@pytest.mark.parametrize("case", BAD_ROUTES)
def test_a_bad_route_is_told_with_line_and_path(tmp_path: Path, case: str) -> None:
    route, expected = BAD_ROUTES[case]
    assert problems_of(tmp_path, f"{CLUSTERS}routes:\n  - {route}\n") == expected


BAD_CLUSTERS = {
    "neither bootstrap nor embedded": ("{}", ["2: clusters.x: says neither 'bootstrap' nor 'embedded'"]),
    "both": (
        "{embedded: {port: 1}, bootstrap: ['h:1']}",
        ["2: clusters.x.bootstrap: an embedded cluster has addresses of its own: leave this out"],
    ),
    "no address": ("{bootstrap: []}", ["2: clusters.x.bootstrap: is empty"]),
    "a bad address": ("{bootstrap: [h]}", ["2: clusters.x.bootstrap[0]: 'h' is not host:port"]),
    "several addresses in one": (
        "{bootstrap: ['h:1,g:2']}",
        ["2: clusters.x.bootstrap[0]: 'h:1,g:2' is not one host:port but several"],
    ),
    "an address with two ports": (
        "{bootstrap: ['h:1:2']}",
        ["2: clusters.x.bootstrap[0]: 'h:1:2' is not host:port"],
    ),
    "an address that is a URL": (
        "{bootstrap: ['kafka://h:1']}",
        ["2: clusters.x.bootstrap[0]: 'kafka://h:1' is not host:port"],
    ),
    "a port missing": ("{embedded: {brokers: 1}}", ["2: clusters.x.embedded: the key 'port' is missing"]),
    "a port out of range": (
        "{embedded: {port: 70000}}",
        ["2: clusters.x.embedded.port: 70000 is not between 1 and 65535"],
    ),
    "ports out of range": (
        "{embedded: {port: 65535, brokers: 2}}",
        ["2: clusters.x.embedded.port: 2 consecutive ports from 65535 on go beyond 65535"],
    ),
    "a text for a number": (
        "{embedded: {port: '19092'}}",
        ["2: clusters.x.embedded.port: expected a whole number, found text (19092)"],
    ),
    "a bad connect string": (
        "{bootstrap: ['h:1'], zookeeper: 'a:b/c'}",
        ["2: clusters.x.zookeeper: 'a:b/c' is not host:port[,host:port][/chroot]"],
    ),
    "no mapping": ("5", ["2: clusters.x: expected a mapping, found a whole number (5)"]),
}


@pytest.mark.parametrize("case", BAD_CLUSTERS)
def test_a_bad_cluster_is_told_with_line_and_path(tmp_path: Path, case: str) -> None:
    cluster, expected = BAD_CLUSTERS[case]
    assert problems_of(tmp_path, f"clusters:\n  x: {cluster}\n") == expected


def test_all_problems_come_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    text = """\
clusters:
  jfk: {embedded: {brokers: 1, port: 19092}}
  lga: {embedded: {brokers: 1, prot: 19192}}
  2013: {bootstrap: ["h:1"]}
  jfk: {bootstrap: ["h:1"]}
routes:
  - {from: jfk, to: lgb, topics: {include: [a]}}
  - from: lga
    to: jfk
    topics:
      include: ["("]
pipelines: [{name: x}]
data: x
"""
    assert problems_of(tmp_path, text) == [
        "3: clusters.lga.embedded: the key 'port' is missing",
        "3: clusters.lga.embedded.prot: unknown key; did you mean 'port'?",
        "4: clusters: the key '2013' is not text: put it in quotes",
        "5: clusters.jfk: the key stands here twice, first in line 2",
        "7: routes[0].to: there is no cluster 'lgb'; did you mean 'lga'?",
        "11: routes[1].topics.include[0]: '(' is not a regular expression: "
        "missing ), unterminated subpattern at position 0",
        "12: pipelines[0]: lacks 'cluster', 'topics', 'sinks', and there is no 'job' instead",
        "13: data: unknown key; did you mean 'data_dir'?",
    ]


def test_clusters_may_not_share_an_address(tmp_path: Path) -> None:
    text = """\
clusters:
  a: {embedded: {brokers: 3, port: 19092}}
  b: {embedded: {brokers: 1, port: 19094}}
  c: {bootstrap: ["127.0.0.1:19092"]}
"""
    assert problems_of(tmp_path, text) == [
        "3: clusters.b.embedded.port: 127.0.0.1:19094 belongs to the cluster 'a' already",
        "4: clusters.c.bootstrap: 127.0.0.1:19092 belongs to the cluster 'a' already",
    ]


def test_routes_of_the_same_name_are_refused(tmp_path: Path) -> None:
    text = CLUSTERS + "routes:\n" + ROUTE + ROUTE.replace("flights", "planes")
    assert problems_of(tmp_path, text) == [
        "6: routes[1].name: routes[0] is called 'jfk-to-aggregate' too: give this one another name"
    ]


def test_routes_that_write_the_same_topics_are_refused(tmp_path: Path) -> None:
    text = """\
clusters: {a: {bootstrap: ["a:1"]}, b: {bootstrap: ["b:1"]}, c: {bootstrap: ["c:1"]}}
routes:
  - {from: a, to: c, topics: {include: [x], name: "{topic}"}}
  - {from: b, to: c, topics: {include: [y, x], name: "{topic}"}}
"""
    assert problems_of(tmp_path, text) == [
        "4: routes[1].topics: writes the same topics of 'c' as routes[0]: "
        "use {cluster} in 'name', or say 'merge: true' in both"
    ]


def test_routes_with_different_patterns_for_the_same_topics_are_refused(tmp_path: Path) -> None:
    text = """\
clusters: {a: {bootstrap: ["a:1"]}, c: {bootstrap: ["c:1"]}}
routes:
  - {from: a, to: c, topics: {include: ["flights.*"], exclude: [flights-test]}}
  - {from: a, to: c, topics: {include: [flights-late]}, name: late}
  - {from: a, to: c, topics: {include: [flights-test]}, name: test}
"""
    assert problems_of(tmp_path, text) == [
        "4: routes[1].topics: writes the same topics of 'c' as routes[0]: "
        "use {cluster} in 'name', or say 'merge: true' in both"
    ]


def test_a_pattern_of_endless_repetitions_is_checked_in_no_time(tmp_path: Path) -> None:
    route = "  - {from: jfk, to: aggregate, topics: {include: ['(a{60000}){60000}']}}\n"
    assert load(tmp_path, CLUSTERS + "routes:\n" + route)


def test_a_data_dir_that_is_no_path_is_refused(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, CLUSTERS + 'data_dir: "a\\0b"\n')
    assert problems == ["4: data_dir: 'a\\x00b' is not a path: embedded null byte"]


TWO_WAYS = """\
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}, c: {{bootstrap: ["c:1"]}}}}
routes:
  - {{from: a, to: b, topics: {{include: [{0}], name: "{1}"}}}}
  - {{from: b, to: c, topics: {{include: [{0}], name: "{1}"}}}}
  - {{from: c, to: a, topics: {{include: [{0}], name: "{1}"}}}}
"""


@pytest.mark.parametrize(
    ("include", "name", "circles"),
    [
        ("'.*'", "{cluster}.{topic}", True),
        ("'[a-z]+'", "{cluster}.{topic}", False),
        ("orders", "{cluster}.{topic}", False),
    ],
)
def test_topics_whose_names_would_grow_in_circles_are_refused(
    tmp_path: Path, include: str, name: str, circles: bool
) -> None:
    text = TWO_WAYS.format(include, name)
    if circles:
        problems = problems_of(tmp_path, text)
        assert len(problems) == 3
        assert problems[0].startswith("3: routes[0].topics: topic ")
        assert "would go in circles: a -> b -> c -> a" in problems[0]
    else:
        assert load(tmp_path, text)


THERE_AND_BACK = """\
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}}}
routes:
  - {{from: a, to: b, topics: {{include: ['{0}'], name: "{{topic}}"}}}}
  - {{from: b, to: a, topics: {{include: ['{1}'], name: "{{topic}}"}}}}
"""


@pytest.mark.parametrize(
    ("there", "back", "circles"),
    [
        ("(orders|payments)[.].*", "(refunds|payments)[.].*", True),
        ("orders|shared", "planes|shared", True),
        ("(eu-)?orders", "(us-)?orders", True),
        ("orders.*", ".*-eu", True),
        ("[a-z]+-eu", "orders[-.].{2}", True),
        ("(orders|payments)[.].*", "(refunds|flights)[.].*", False),
        ("(eu-)orders", "(us-)?orders", False),
        ("orders.*", ".*-eu[.].*-orders-", True),
        ("orders[0-9]+", "orders[a-z]+", False),
    ],
)
def test_topics_that_two_patterns_share_have_provenance(
    tmp_path: Path, there: str, back: str, circles: bool
) -> None:
    loaded = load(tmp_path, THERE_AND_BACK.format(there, back))
    assert [route.provenance for route in loaded.routes] == [circles] * 2


TO_EU = "route: {to: ord-eu, when: {key_prefix: eu}}"


@pytest.mark.parametrize(
    ("there", "steps", "back", "circles"),
    [
        ("ord.*", TO_EU, "{include: ['ord-.*'], name: '{topic}'}", True),
        ("ord.*", TO_EU, "{include: [ord-eu], name: '{topic}'}", True),
        ("ord.*", TO_EU, "{include: [ord-us], name: '{topic}'}", False),
        ("orders", TO_EU, "{include: ['ord-.*'], name: '{topic}'}", False),
        (".*", TO_EU + ", topics: [orders]", "{include: [ord-eu], name: '{topic}'}", False),
        (".*", TO_EU + ", topics: ['ord.*']", "{include: [ord-eu], name: '{topic}'}", True),
        (".*", TO_EU, "{include: [ord-eu], name: 'from.{cluster}.{topic}'}", True),
        ("(from.)?ord-eu", TO_EU, "{include: [ord-eu], name: 'from.{topic}'}", True),
    ],
)
def test_circles_through_topics_that_steps_name_have_provenance(
    tmp_path: Path, there: str, steps: str, back: str, circles: bool
) -> None:
    """On all of their routes; where one is without, they are refused."""
    text = f"""\
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}}}
routes:
  - {{from: a, to: b, topics: {{include: ['{there}']}}, transforms: [{{{steps}}}]}}
  - {{from: b, to: a, topics: {back}}}
"""
    assert [route.provenance for route in load(tmp_path, text).routes] == [circles] * 2
    without = text.replace("{from: b,", "{provenance: false, from: b,")
    if not circles:
        assert load(tmp_path, without)
        return
    (problem,) = problems_of(tmp_path, without)
    assert problem.startswith("4: routes[1].topics: topic ")
    assert "would go in circles: " in problem
    assert problem.endswith("taken again: 'provenance' would cut it")


@pytest.mark.parametrize(
    ("keys", "back", "grows"),
    [
        ("transforms: [{route: {to: 'big.{topic}'}}]", ".*", True),
        ("transforms: [{route: {to: 'big.{topic}'}, topics: [x]}]", ".*", False),
        ("transforms: [{route: {to: 'big.{topic}'}, topics: [x, big.x]}]", ".*", False),
        ("transforms: [{route: {to: 'big.{topic}'}, topics: ['.*x']}]", ".*", True),
        ("transforms: [{route: {to: 'big.{topic}'}}]", "x", False),
        ("filters: [{drop: {key_prefix: x}}], on: {record_error: park}", ".*", False),
        ("filters: [{drop: {key_prefix: x}}], on: {record_error: park}", "[a-z]+", False),
        ("filters: [{drop: {key_prefix: x}}]", ".*", False),
        ("on: {record_error: park}", ".*", False),
    ],
)
def test_names_of_steps_that_would_grow_in_circles_are_refused(
    tmp_path: Path, keys: str, back: str, grows: bool
) -> None:
    """Though provenance would cut the circle that the copies go in: new topics would be made for ever."""
    text = f"""\
clusters: {{a: {{bootstrap: ["a:1"]}}, b: {{bootstrap: ["b:1"]}}}}
routes:
  - {{from: a, to: b, topics: {{include: ['.*'], name: "{{topic}}"}}, {keys}}}
  - {{from: b, to: a, topics: {{include: ['{back}'], name: "{{topic}}"}}}}
"""
    if grows:
        problems = problems_of(tmp_path, text)
        assert problems
        assert all("would go in circles" in problem for problem in problems)
        assert not any("'provenance' would cut it" in problem for problem in problems)
    else:
        assert all(route.provenance for route in load(tmp_path, text).routes)


@pytest.mark.parametrize("include", ["orders", "'(orders|sales)-\\d+'", "'.*'"])
def test_topics_that_keep_their_names_in_a_circle_need_provenance_on_all_of_it(
    tmp_path: Path, include: str
) -> None:
    text = TWO_WAYS.format(include, "{topic}")
    assert all(route.provenance for route in load(tmp_path, text).routes)
    one_without = text.replace("{from: b, to: c,", "{from: b, to: c, provenance: false,")
    (problem,) = problems_of(tmp_path, one_without)
    assert problem.startswith("4: routes[1].topics: topic ")
    assert "would go in circles: b -> c -> a -> b" in problem
    assert problem.endswith("taken again: 'provenance' would cut it")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clusters: [\n", "2: not YAML: expected the node content, but found '<stream end>' while parsing"),
        ("- a\n", "1: expected a mapping, found a list"),
        ("", "1: expected a mapping, found nothing"),
        ("a: 1\n---\nb: 2\n", "2: not YAML: but found another document expected a single document"),
        ("a: *b\n", "1: not YAML: found undefined alias 'b'"),
        ("a: 1\nb: \x01\n", "2: not YAML: special characters are not allowed"),
        ("[" * 3000 + "]" * 3000, " not a topology: nested too deeply"),
    ],
)
def test_what_is_not_one_yaml_mapping_is_told_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    (problem,) = problems_of(tmp_path, text)
    assert problem.startswith(expected)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.yaml: No such file or directory"):
        load_topology(tmp_path / "missing.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\xfe\xfa")
    with pytest.raises(ConfigurationError, match=r"binary\.yaml:2: not UTF-8 text"):
        load_topology(binary)


def test_a_saved_plan_is_told_from_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"version": 1, "topology": {}, "steps": [], "routes": [], "checksum": "c0ffee"}')
    with pytest.raises(ConfigurationError) as caught:
        load_topology(file)
    assert caught.value.problems == [f"{file}: is a saved plan: mirrormaker apply TOPOLOGY --plan {file}"]
