"""The properties file of MirrorMaker 2 as a topology."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.errors import ConfigurationError
from broker.types import HostPort
from mirrormaker.importing.importer import import_files
from mirrormaker.topology.model import Compression, Delivery, Isolation, RepairKind, RouteSpec, Start
from mirrormaker.topology.naming import compile_naming
from tests.importing.imports import ONE_WAY, TWO, imported, problems_of

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
THREE = """\
clusters = a, b, c
a.bootstrap.servers = a1:9092
b.bootstrap.servers = b1:9092
c.bootstrap.servers = c1:9092
"""
BOTH_WAYS = f"{ONE_WAY}b->a.enabled = true\n"


def copies(route: RouteSpec, topics: str) -> dict[str, str]:
    """Those of the topics that the route takes, and their names at the destination."""
    naming = compile_naming(route.source, route.topics)
    return {topic: naming.destination_of(topic) for topic in topics.split() if naming.selects(topic)}


def test_a_flow_is_a_route_between_the_clusters(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        "clusters = a, b, c\na.bootstrap.servers = a1:9092, SSL://a2:9093\nb.bootstrap.servers = [::1]:1\n"
        "c.bootstrap.servers: c1:1\na->b.enabled = true\nb->c.enabled = True\nc->a.enabled = false\n",
    )
    assert [(route.name, route.source, route.destination) for route in outcome.topology.routes] == [
        ("a-to-b", "a", "b"),
        ("b-to-c", "b", "c"),
    ]
    assert outcome.topology.clusters["a"].bootstrap == (HostPort("a1", 9092), HostPort("a2", 9093))
    assert outcome.notes == []


def test_a_file_that_says_no_more_copies_what_mirrormaker_2_would(tmp_path: Path) -> None:
    route = imported(tmp_path, ONE_WAY).route
    assert copies(
        route, "orders __consumer_offsets x.internal x-internal x.replica mm2-offsets.b.internal"
    ) == {"orders": "a.orders"}
    assert copies(route, "b.x c.b.x b bx b-x") == {"b": "a.b", "bx": "a.bx", "b-x": "a.b-x"}
    assert route.sync.acls
    assert route.sync.groups is None
    assert (route.start, route.delivery, route.compression) == (
        Start.EARLIEST,
        Delivery.AT_LEAST_ONCE,
        Compression.PRESERVE,
    )


@pytest.mark.parametrize(
    ("settings", "topics", "taken"),
    [
        ("topics = orders, payments\\\\..*", "orders orders2 payments.eu", {"orders", "payments.eu"}),
        ("topics = .*\ntopics.exclude = test-.*, x", "a test-a x x.internal", {"a", "x.internal"}),
        ("topics.blacklist = x", "a x", {"a"}),
        ("topics = a\na->b.topics = b", "a b", {"b"}),
        ("topics.exclude = x", "mm2-offset-syncs.b.internal q.checkpoints.internal y", {"y"}),
        ("topics = o\\\\u0072ders|b", "orders b", {"orders", "b"}),
    ],
)
def test_lists_of_names_and_expressions_are_those_of_the_route(
    tmp_path: Path, settings: str, topics: str, taken: set[str]
) -> None:
    settings = settings.replace("topics", "a->b.topics") if "u0072" in settings else settings
    assert copies(imported(tmp_path, f"{ONE_WAY}{settings}\n").route, topics).keys() == taken


def test_names_are_told_one_by_one_without_what_they_do_not_need(tmp_path: Path) -> None:
    route = imported(tmp_path, f"{ONE_WAY}topics = orders, b.x, eu.payments\n").route
    assert route.topics.include == ("orders", "b.x", "eu.payments")
    assert route.topics.exclude == ("(.*\\.)?b\\..*",)


def test_both_ways_names_never_grow(tmp_path: Path) -> None:
    forth, back = imported(tmp_path, BOTH_WAYS).topology.routes
    assert copies(forth, "x c.x b.x") == {"x": "a.x", "c.x": "a.c.x"}
    assert copies(back, "x a.x c.a.x") == {"x": "b.x"}
    assert not forth.provenance


def test_another_separator_stands_in_names_and_in_what_is_left_out(tmp_path: Path) -> None:
    forth, back = imported(tmp_path, f"{BOTH_WAYS}replication.policy.separator = _\n").topology.routes
    topics = "x b_x b.x mm2-offset-syncs_b_internal a_checkpoints_internal"
    assert copies(forth, topics) == {"x": "a_x", "b.x": "a_b.x"}
    assert copies(back, "x a_x") == {"x": "b_x"}


def test_names_kept_both_ways_have_provenance(tmp_path: Path) -> None:
    outcome = imported(tmp_path, BOTH_WAYS + IDENTITY)
    for route in outcome.topology.routes:
        assert copies(route, "x b.x heartbeats a.heartbeats b.a.heartbeats c.heartbeats x.heartbeats") == {
            name: name for name in ("x", "b.x", "c.heartbeats", "x.heartbeats")
        }
        assert route.provenance
    assert "provenance: true" in outcome.text


def test_routes_that_gather_under_kept_names_merge(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        f"{THREE}{IDENTITY}sync.group.offsets.enabled = true\n"
        "a->c.enabled = true\nb->c.enabled = true\na->b.enabled = true\na->b.topics = x\n",
    )
    assert {route.name: route.topics.merge for route in outcome.topology.routes} == {
        "a-to-b": False,
        "a-to-c": True,
        "b-to-c": True,
    }
    assert {route.name: route.sync.groups is not None for route in outcome.topology.routes} == {
        "a-to-b": True,
        "a-to-c": False,
        "b-to-c": False,
    }
    assert [note.split(": ")[1] for note in outcome.notes] == [
        "sync.group.offsets.enabled",
        "a->c.enabled",
        "b->c.enabled",
    ]
    assert "cannot be carried into topics that several routes write" in outcome.notes[0]
    assert "what has been copied comes again" in outcome.notes[1]


def test_a_flow_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    text = f"{THREE}a->c.enabled = true\nb->c.enabled = true\na->c.{IDENTITY}"
    kept, renamed = imported(tmp_path, text).topology.routes
    assert copies(kept, "x") == {"x": "x"}
    assert copies(renamed, "x") == {"x": "b.x"}


@pytest.mark.parametrize(
    ("settings", "carried", "left"),
    [
        ("", {"cleanup.policy", "retention.ms", "segment.bytes"}, {"min.insync.replicas"}),
        (
            "config.properties.exclude = retention\\\\..*, x",
            {"min.insync.replicas", "cleanup.policy"},
            {"retention.ms", "retention.bytes"},
        ),
        ("config.properties.exclude =", {"min.insync.replicas"}, set()),
        ("config.properties.blacklist = cleanup.policy", {"retention.ms"}, {"cleanup.policy"}),
    ],
)
def test_settings_of_topics_are_carried_as_before(
    tmp_path: Path, settings: str, carried: set[str], left: set[str]
) -> None:
    (pattern,) = imported(tmp_path, f"{ONE_WAY}{settings}\n").route.sync.config
    assert all(re.fullmatch(pattern, name) for name in carried)
    assert not any(re.fullmatch(pattern, name) for name in left)


def test_settings_that_are_not_kept_alike_are_told_and_left(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path, f"{ONE_WAY}sync.topic.configs.enabled = false\nsync.topic.acls.enabled = false\n"
    )
    assert outcome.route.sync.repair == (RepairKind.TOPICS, RepairKind.PARTITIONS, RepairKind.ACLS)
    assert not outcome.route.sync.acls
    assert [note.partition(": ")[2] for note in outcome.notes] == [
        "sync.topic.configs.enabled: topics are made with the source's settings; what differs later is told, "
        "and left to `apply`"
    ]


def test_groups_are_carried_where_their_offsets_were_synced(tmp_path: Path) -> None:
    settings = "groups = shop-.*, billing\na->b.sync.group.offsets.enabled = true\n"
    groups = imported(tmp_path, f"{ONE_WAY}{settings}").route.sync.groups
    assert groups is not None
    assert groups.include == ("shop-.*", "billing")
    assert groups.exclude == ("console-consumer-.*", "connect-.*", "__.*")
    assert not groups.rewinds
    settings += "groups.exclude = x\nsync.group.offsets.interval.seconds = 20\n"
    groups = imported(tmp_path, f"{ONE_WAY}{settings}").route.sync.groups
    assert groups is not None
    assert (groups.exclude, groups.interval_ms) == (("x",), 20_000)


def test_groups_with_checkpoints_alone_are_told(tmp_path: Path) -> None:
    outcome = imported(tmp_path, f"{ONE_WAY}groups = shop\nemit.checkpoints.interval.seconds = 5\n")
    assert outcome.route.sync.groups is None
    assert [note.split(": ")[:3] for note in outcome.notes] == [
        ["5", "groups", "left out"],
        ["6", "emit.checkpoints.interval.seconds", "left out"],
    ]


def test_how_records_are_copied(tmp_path: Path) -> None:
    route = imported(
        tmp_path,
        f"{ONE_WAY}b.exactly.once.source.support = enabled\na.consumer.isolation.level = read_uncommitted\n"
        "a->b.consumer.auto.offset.reset = latest\nb.producer.compression.type = zstd\ntasks.max = 10\n"
        "refresh.topics.interval.seconds = 30\nemit.heartbeats.enabled = false\n",
    ).route
    assert route.delivery is Delivery.EXACTLY_ONCE
    assert route.isolation is Isolation.READ_UNCOMMITTED
    assert route.start is Start.LATEST
    assert route.compression is Compression.ZSTD
    assert (route.resources.workers, route.buckets) == (10, 40)
    assert route.refresh_interval_ms == 30_000
    assert not route.heartbeats


def test_what_the_other_end_is_told_is_no_matter(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        f"{ONE_WAY}a.exactly.once.source.support = enabled\nexactly.once.source.support = enabled\n"
        "b.consumer.isolation.level = read_uncommitted\na.producer.compression.type = zstd\n"
        "consumer.auto.offset.reset = latest\nconsumer.poll.timeout.ms = 1\n",
    )
    assert outcome.route.start is Start.EARLIEST
    assert outcome.route.delivery is Delivery.AT_LEAST_ONCE
    assert outcome.route.isolation is Isolation.READ_COMMITTED
    assert outcome.route.compression is Compression.PRESERVE
    assert [note.partition(":")[0] for note in outcome.notes] == ["5", "6", "7", "8", "9", "10"]


def test_an_interval_that_there_is_not_is_the_nearest(tmp_path: Path) -> None:
    outcome = imported(tmp_path, f"{ONE_WAY}refresh.topics.interval.seconds = 7200\n")
    assert outcome.route.refresh_interval_ms == 3_600_000
    assert outcome.notes == [
        "5: refresh.topics.interval.seconds: is 3600000 ms here: from 100 ms to an hour is what there is"
    ]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("replication.factor = 3", "with the replicas of the source's"),
        ("a->b.offset-syncs.topic.location = target", "the ledger in __mirrormaker_ledger"),
        (
            "topic.filter.class = org.example.Mine",
            "a class of Java, which is not called here: topics are",
        ),
        ("a->b.transforms = mask", "`filters` and `transforms` of a route"),
        ("a->b.transforms.mask.type = x", "`filters` and `transforms` of a route"),
        ("b.producer.batch.size = 1", "batches cross as they came"),
        ("a.consumer.fetch.max.bytes = 1", "fetches are sized by round trip and speed"),
        ("dedicated.mode.enable.internal.rest = true", "of Kafka Connect's workers"),
        ("topcis = x", "no setting of MirrorMaker 2 that is known (did you mean topics?)"),
        ("a.whatever = x", "no setting of MirrorMaker 2 that is known"),
    ],
)
def test_what_has_no_counterpart_is_told_with_its_line(tmp_path: Path, setting: str, told: str) -> None:
    (note,) = imported(tmp_path, f"{ONE_WAY}{setting}\n").notes
    assert note.startswith(f"5: {setting.partition(' = ')[0]}: left out: ")
    assert told in note


@pytest.mark.parametrize(
    "setting",
    [
        "key.converter = org.apache.kafka.connect.converters.ByteArrayConverter",
        "topic.filter.class = org.apache.kafka.connect.mirror.DefaultTopicFilter",
        "replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "refresh.topics.enabled = true",
        "emit.heartbeats.interval.seconds = 1",
        "b.producer.acks = all",
        "tasks.max = 1",
        "b->a.enabled = false",
    ],
)
def test_what_is_so_anyway_is_not_told(tmp_path: Path, setting: str) -> None:
    assert imported(tmp_path, f"{ONE_WAY}{setting}\n").notes == []


def test_flows_that_are_not_enabled_are_told_where_something_is_said_of_them(tmp_path: Path) -> None:
    outcome = imported(tmp_path, f"{ONE_WAY}b->a.topics = x\n")
    assert outcome.notes == ["5: b->a.topics: the flow is not enabled, and no route is made for it"]
    assert outcome.route.name == "a-to-b"


def test_what_enables_all_flows_is_told_and_counts_for_those_that_emit_heartbeats(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        f"{THREE}enabled = true\na->c.enabled = false\nb->a.enabled = true\n"
        "b->c.emit.heartbeats.enabled = false\nb->a.emit.heartbeats.enabled = false\n",
    )
    assert [route.name for route in outcome.topology.routes] == ["a-to-b", "b-to-a", "c-to-a", "c-to-b"]
    told = "enables every flow, both ways, but those that say otherwise: each has a route"
    assert f"5: enabled: {told}" in outcome.notes
    told = "enables no flow that emits no heartbeats: MirrorMaker 2 has A->B.enabled for these"
    assert f"5: enabled: {told}" in outcome.notes


def test_what_all_routes_say_stands_once(tmp_path: Path) -> None:
    text = imported(tmp_path, f"{BOTH_WAYS}tasks.max = 4\n").text
    assert text.count("workers: 4") == text.count("acls: true") == 1
    assert text.index("defaults:") < text.index("workers: 4") < text.index("routes:")


def test_names_of_clusters_may_hold_what_parts_them_from_settings(tmp_path: Path) -> None:
    outcome = imported(
        tmp_path,
        "clusters = eu, eu.west\neu.bootstrap.servers = e:1\neu.west.bootstrap.servers = w:1\n"
        "eu.west->eu.enabled = true\neu->eu.west.topics = x\neu->eu.west.enabled = true\n",
    )
    assert [route.name for route in outcome.topology.routes] == ["eu-to-eu.west", "eu.west-to-eu"]
    assert outcome.topology.routes[0].topics.include == ("x",)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [" clusters: is missing: the names of the clusters"]),
        ("clusters =\n", ["1: clusters: names no cluster"]),
        (TWO, ["1: clusters: no flow between them is enabled: a->OTHER.enabled = true"]),
        ("clusters = a, b\na.bootstrap.servers = a:1\na->b.enabled = true\n",
         ["1: clusters: bootstrap.servers of 'b' is missing"]),
        (f"{ONE_WAY}a->d.enabled = true\nx->b.topics = y\nz.bootstrap.servers = z:1\n",
         ["5: a->d.enabled: there is no cluster 'd' among 'clusters'",
          "6: x->b.topics: there is no cluster 'x' among 'clusters'",
          "7: z.bootstrap.servers: there is no cluster 'z' among 'clusters'"]),
        (f"{TWO}a->a.enabled = true\n", ["4: a->a.enabled: leads to the cluster that it comes from"]),
        (f"{TWO}a->b.enabled = yes\n", ["4: a->b.enabled: expected true or false, not 'yes'"]),
        (f"{ONE_WAY}tasks.max = many\nsync.topic.acls.enabled = 1\na->b.topics = [\n",
         ["5: tasks.max: expected a whole number, not 'many'",
          "6: sync.topic.acls.enabled: expected true or false, not '1'",
          "7: a->b.topics: '[' is not a regular expression: unterminated character set at position 0"]),
        (f"{ONE_WAY}topics = ${{file:/x:topics}}\n",
         ["5: topics: is a variable, which nobody fills in here: say what it stands for"]),
        (f"{ONE_WAY}topics = a{{1,2}}, (x\ngroups = [[a]\n",
         ["5: topics: 'a{1' is not a regular expression: commas part the list, between braces too",
          "5: topics: '2}' is not a regular expression: commas part the list, between braces too",
          "5: topics: '(x' is not a regular expression: missing ), unterminated subpattern at position 0",
          "6: groups: '[[a]' is not a regular expression: Possible nested set at position 1"]),
        (f"{ONE_WAY}topics =\n", ["5: topics: names no topics"]),
        (f"{ONE_WAY}replication.policy.class = com.example.Mine\n",
         ["5: replication.policy.class: what topics become is not known here: DefaultReplicationPolicy and "
          "IdentityReplicationPolicy are"]),
        (f"{ONE_WAY}replication.policy.separator = /\n",
         ["5: replication.policy.separator: topic names hold only letters, digits, '.', '_' and '-'"]),
        (f"{ONE_WAY}b.producer.compression.type = rar\n",
         ["5: b.producer.compression.type: expected one of none, gzip, snappy, lz4, zstd, not 'rar'"]),
        ("clusters = _a, b\n_a.bootstrap.servers = a\nb.bootstrap.servers = ,\n_a->b.enabled = true\n",
         ["1: clusters: '_a' is not a name: up to 80 letters, digits, '.', '_' and '-', no sign first",
          "2: _a.bootstrap.servers: 'a' is not host:port",
          "3: b.bootstrap.servers: names no node"]),
        (f"{ONE_WAY}x = \\u12\n", ["5: four hexadecimal digits belong behind \\u"]),
        ("clusters = a, b\na.bootstrap.servers = h:1\nb.bootstrap.servers = h:1\na->b.enabled = true\n",
         [" makes no topology: clusters.b.bootstrap: h:1 belongs to the cluster 'a' already"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_at_once_with_file_line_and_setting(
    tmp_path: Path, text: str, problems: list[str]
) -> None:
    assert problems_of(tmp_path, text) == problems


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        import_files([tmp_path / "absent"], tmp_path / "topology.yaml")
