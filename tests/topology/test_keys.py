"""Every key of a topology file, read into the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.topology.model import (
    AllOf,
    AnyOf,
    BatchSpec,
    CallFunction,
    ClusterName,
    Compression,
    CopyMode,
    Day,
    Delivery,
    DropParts,
    FailurePolicies,
    FailurePolicy,
    FilterAction,
    FilterSpec,
    GroupSync,
    HeaderTest,
    Isolation,
    JsonTest,
    KeyPrefix,
    LinkSpec,
    MaskParts,
    Membership,
    Not,
    Objectives,
    Outage,
    PartitionPolicy,
    RecordErrorPolicy,
    RenameParts,
    RepairKind,
    RouteTo,
    SimulatedCluster,
    SimulatedLink,
    SimulatedRoute,
    Start,
    StartAtOffsets,
    StartAtTime,
    SyncSpec,
    TopicSpec,
    TransformSpec,
    Window,
)
from tests.topology.files import CLUSTERS, load, load_route, problem_of_route, problems_of

EVERYTHING = """\
generation: 7
clusters:
  jfk:
    bootstrap: ["jfk:9092"]
    zookeeper: "zk:2181/jfk"
    cluster_id: Jfk-0_1
    datacenter: new-york
    round_trip_ms: 40
    topics:
      orders:
        partitions: 12
        replication: 3
        config: {retention.ms: 86_400_000, unclean.leader.election.enable: false}
      sales: {}
  aggregate: {bootstrap: ["aggregate:9092"]}
links:
  - from: jfk
    to: aggregate
    bytes_per_second: 50_000_000
    windows: [{days: [mon, fri], from: 08:00, to: 18:00, zone: Europe/Berlin, bytes_per_second: 5MB}]
routes:
  - name: eastward
    from: jfk
    to: aggregate
    owner: platform@example.com
    enabled: true
    start: latest
    topics: {include: [orders], exclude: [x], name: "{topic}", partitions: key, merge: true}
    membership: zookeeper
    delivery: at_most_once
    copy: deep
    compression: zstd
    batch: {bytes: 512KiB, linger_ms: 20}
    isolation: read_uncommitted
    sync: {topics: false, partitions: false, config: ["retention.*"], acls: true}
    on: {source_gap: fail, oversize: skip_and_record, record_error: park}
    buckets: 8
    commit_interval_ms: 2s
    refresh_interval_ms: 500
    resources:
      buffer_bytes: 128MiB
      bytes_per_second: 10MB
      windows: [{from: "22:00", to: "06:00", bytes_per_second: 0}]
      priority: 9
      catch_up_bytes_per_second: 1MB
      workers: 4
    objectives: {lag_seconds: 30, audit_window: 10m}
    provenance: true
    failover_group: orders
pipelines:
  - name: hourly
    owner: data@example.com
    enabled: false
    cluster: aggregate
    topics: {include: ["jfk.orders"], exclude: ["x.*"]}
    start: {timestamp: 2026-01-01T00:00:00Z}
    source_options: {failOnDataLoss: false, minPartitions: 4}
    format: json
    schema: "id long, price double"
    format_options: {allowComments: true}
    time: "to_timestamp(value.at)"
    watermark: {delay: 10m}
    tables: {shops: {format: csv, path: shops.csv, schema: "shop string", options: {header: true}}}
    steps:
      - {name: clean, from: records, sql: "select value.*, topic, date from records"}
      - {name: gathered, from: [clean], function: package.module:gather}
    sinks:
      - {parquet: out/orders, from: clean, partition_by: [topic, date], options: {compression: zstd}}
      - {iceberg: lake.orders, from: clean}
      - {delta: "s3a://lake/orders", from: clean}
      - jdbc: {url: "jdbc:postgresql://db/x", table: orders, user: me, password: env:PASSWORD, driver: a.B}
      - {topic: {topic: orders-clean, cluster: jfk}}
      - {topic: gathered-orders}
    quarantine: out/bad
    schedule: {cron: "5 * * * *", zone: Europe/Berlin}
    batch_records: 1_000
    require: complete
    patience: 2h
    master: "spark://127.0.0.1:7077"
    spark: {spark.executor.memory: 2g}
    checkpoint: hdfs://lake/checkpoints/hourly
    retry: {attempts: 5, backoff: 10s, backoff_max: 5m}
    alert: {command: [notify, me], webhook: "https://alerts.example.com/x", on: [failed]}
  - name: upkeep
    job: mirrormaker.spark.jobs.compaction:run
    arguments: {path: out/orders}
    schedule: {every: 1d}
pipelines_at_once: 2
data_dir: state
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    topology = load(tmp_path, EVERYTHING)
    assert (topology.generation, topology.pipelines_at_once) == (7, 2)
    jfk, _ = topology.clusters.values()
    assert (jfk.cluster_id, jfk.datacenter, jfk.round_trip_ms) == ("Jfk-0_1", "new-york", 40)
    config = {"retention.ms": "86400000", "unclean.leader.election.enable": "false"}
    assert jfk.topics == {
        "orders": TopicSpec(partitions=12, replication=3, config=config),
        "sales": TopicSpec(),
    }
    office = Window(
        days=(Day.MON, Day.FRI),
        start_minute=480,
        end_minute=1080,
        zone="Europe/Berlin",
        bytes_per_second=5_000_000,
    )
    assert topology.links == (
        LinkSpec(source="jfk", destination="aggregate", bytes_per_second=50_000_000, windows=(office,)),
    )
    (route,) = topology.routes
    assert (route.name, route.owner, route.enabled, route.start) == (
        "eastward",
        "platform@example.com",
        True,
        Start.LATEST,
    )
    assert (route.topics.name, route.topics.partitions, route.topics.merge) == (
        "{topic}",
        PartitionPolicy.KEY,
        True,
    )
    assert (route.membership, route.delivery) == (Membership.ZOOKEEPER, Delivery.AT_MOST_ONCE)
    assert (route.copy, route.compression) == (CopyMode.DEEP, Compression.ZSTD)
    assert route.batch == BatchSpec(bytes=524_288, linger_ms=20)
    assert route.isolation is Isolation.READ_UNCOMMITTED
    assert route.sync == SyncSpec(topics=False, partitions=False, config=("retention.*",), acls=True)
    assert route.on == FailurePolicies(
        source_gap=FailurePolicy.FAIL,
        oversize=FailurePolicy.SKIP_AND_RECORD,
        record_error=RecordErrorPolicy.PARK,
    )
    assert (route.buckets, route.commit_interval_ms, route.refresh_interval_ms) == (8, 2000, 500)
    resources = route.resources
    assert resources.buffer_bytes == 128 << 20
    assert resources.windows == (Window(start_minute=1320, end_minute=360, bytes_per_second=0),)
    assert (resources.bytes_per_second, resources.catch_up_bytes_per_second) == (10_000_000, 1_000_000)
    assert (resources.priority, resources.workers) == (9, 4)
    assert route.objectives == Objectives(lag_seconds=30, audit_window_ms=600_000)
    assert (route.provenance, route.failover_group) == (True, "orders")


@pytest.mark.parametrize(
    ("said", "start"),
    [
        ("earliest", Start.EARLIEST),
        ("{timestamp: '2026-01-01T00:00:00Z'}", StartAtTime(timestamp_ms=1_767_225_600_000)),
        ("{timestamp: 2026-01-01T01:00:00.5+01:00}", StartAtTime(timestamp_ms=1_767_225_600_500)),
        ("{timestamp: 1767225600000}", StartAtTime(timestamp_ms=1_767_225_600_000)),
        ("{offsets: {x: {0: 17, 3: 4}}}", StartAtOffsets(offsets={"x": {0: 17, 3: 4}})),
    ],
)
def test_a_route_starts_where_it_says(tmp_path: Path, said: str, start: object) -> None:
    assert load_route(tmp_path, f"start: {said}").start == start


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("newest", "start: 'newest' is not one of earliest, latest"),
        ("latst", "start: 'latst' is not one of earliest, latest; did you mean 'latest'?"),
        ("LATEST", "start: 'LATEST' is not one of earliest, latest; did you mean 'latest'?"),
        ("{}", "start: needs one of timestamp, offsets: says none of them"),
        ("{timestamp: 1, offsets: {}}", "start: needs one of timestamp, offsets: not timestamp and offsets"),
        (
            "{timestamp: yesterday}",
            "start.timestamp: expected a time such as 2026-01-01T00:00:00Z, found text (yesterday)",
        ),
        (
            "{timestamp: 2026-01-01T00:00:00}",
            "start.timestamp: 2026-01-01T00:00:00 has no time zone: "
            "add Z for UTC, or an offset such as +01:00",
        ),
        ("{offsets: {x: {a: 1}}}", "start.offsets.x.a: the key is not a number: whole, from 0 on"),
        ("{offsets: {x: {0: -1}}}", "start.offsets.x.0: -1 is not between 0 and 9223372036854775807"),
        ("{offsets: {y: {0: 1}}}", "start.offsets.y: the route does not take this topic"),
    ],
)
def test_a_start_that_is_none_is_told(tmp_path: Path, said: str, told: str) -> None:
    assert problem_of_route(tmp_path, f"start: {said}") == told


def test_filters_and_transforms_are_read_in_their_order(tmp_path: Path) -> None:
    route = load_route(
        tmp_path,
        """
        filters: [
          {topics: [x], drop: {key_prefix: test-}},
          {keep: {any: [{header: {name: region, in: [eu, us]}}, {not: {json: {field: a.b, equals: null}}}]}},
          {drop: {all: [{json: {field: n, equals: 5}}, {header: {name: h, matches: "a+"}}]}},
        ],
        transforms: [
          {topics: [x], drop: {fields: [card.number], headers: [trace]}},
          {mask: {fields: [name], with: "?"}},
          {rename: {fields: {old: new}}},
          {route: {to: "{topic}-eu", when: {key_prefix: eu}}},
          {function: package.module:clean},
        ]""",
    )
    assert route.filters == (
        FilterSpec(action=FilterAction.DROP, condition=KeyPrefix(prefix="test-"), topics=("x",)),
        FilterSpec(
            action=FilterAction.KEEP,
            condition=AnyOf(
                conditions=(
                    HeaderTest(name="region", one_of=("eu", "us")),
                    Not(condition=JsonTest(field="a.b", one_of=(None,))),
                )
            ),
        ),
        FilterSpec(
            action=FilterAction.DROP,
            condition=AllOf(
                conditions=(JsonTest(field="n", one_of=(5,)), HeaderTest(name="h", matches="a+"))
            ),
        ),
    )
    assert route.transforms == (
        TransformSpec(step=DropParts(fields=("card.number",), headers=("trace",)), topics=("x",)),
        TransformSpec(step=MaskParts(fields=("name",), replacement="?")),
        TransformSpec(step=RenameParts(fields={"old": "new"})),
        TransformSpec(step=RouteTo(to="{topic}-eu", when=KeyPrefix(prefix="eu"))),
        TransformSpec(step=CallFunction(module="package.module", name="clean")),
    )


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("filters: [{topics: [x]}]", "filters[0]: needs one of drop, keep: says none of them"),
        (
            "filters: [{drop: {key_prefx: a}}]",
            "filters[0].drop.key_prefx: unknown key; did you mean 'key_prefix'?",
        ),
        (
            "filters: [{drop: {header: {name: h, equals: a, in: [b]}}}]",
            "filters[0].drop.header.in: says the same as another key here: leave one of them out",
        ),
        ("filters: [{drop: {any: []}}]", "filters[0].drop.any: is empty"),
        (
            "filters: [{drop: {json: {field: a, equals: !!float x}}}]",
            "filters[0].drop.json.equals: expected a number that JSON has, "
            "found a number with a fraction (x)",
        ),
        (
            "filters: [{drop: {json: {field: a, matches: '('}}}]",
            "filters[0].drop.json.matches: '(' is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
        ),
        (
            "transforms: [{mask: {key: true, with: x, hash: true}}]",
            "transforms[0].mask: says both 'with' and 'hash': one of them would have no effect",
        ),
        (
            "transforms: [{route: {to: 'a b'}}]",
            "transforms[0].route.to: 'a b' is not a topic's name: up to 249 letters, digits, '.', '_' and"
            " '-'",
        ),
        (
            "transforms: [{route: {to: __consumer_offsets}}]",
            "transforms[0].route.to: topics that begin with __ are those of clusters and mirrors",
        ),
        ("transforms: [{mask: {}}]", "transforms[0].mask: names neither 'fields' nor 'headers' nor 'key'"),
        (
            "transforms: [{function: clean}]",
            "transforms[0].function: 'clean' is not a function: write package.module:function",
        ),
        (
            "transforms: [{route: {to: '{region}'}}]",
            "transforms[0].route.to: unknown field {region}: there are {cluster} and {topic}",
        ),
    ],
)
def test_a_step_that_is_none_is_told(tmp_path: Path, keys: str, told: str) -> None:
    assert told in problems_of_route(tmp_path, keys)


def problems_of_route(folder: Path, keys: str) -> list[str]:
    text = f"{CLUSTERS}routes:\n  - {{from: a, to: b, topics: {{include: [x]}}, {keys}}}\n"
    return [told.removeprefix("3: routes[0].") for told in problems_of(folder, text)]


def test_groups_are_carried_over_where_a_route_says_so(tmp_path: Path) -> None:
    assert load_route(tmp_path, "buckets: 1").sync.groups is None
    assert load_route(tmp_path, "sync: {groups: {}}").sync.groups == GroupSync()
    groups = load_route(
        tmp_path, "sync: {groups: {include: [a], exclude: [b], interval_ms: 1s, rewinds: false}}"
    ).sync.groups
    assert groups == GroupSync(include=("a",), exclude=("b",), interval_ms=1000, rewinds=False)


def test_a_condition_that_contains_itself_comes_to_an_end(tmp_path: Path) -> None:
    problems = problems_of_route(tmp_path, "filters: [{drop: &x {not: *x}}]")
    assert problems[0].endswith("an alias stands inside of what it repeats")
    deep = "{not: " * 30 + "{key_prefix: x}" + "}" * 30
    assert problems_of_route(tmp_path, f"filters: [{{drop: {deep}}}]")[0].endswith("nested too deeply")


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_starts() -> None:
    night = Window(days=(Day.SUN,), start_minute=22 * 60, end_minute=6 * 60, bytes_per_second=1)
    held = [(day, hour) for day in Day for hour in range(24) if night.holds(day, hour * 60)]
    assert held == [(Day.MON, hour) for hour in range(6)] + [(Day.SUN, 22), (Day.SUN, 23)]
    day = Window(days=(Day.TUE,), bytes_per_second=1)
    assert {found for found in Day for minute in (0, 1439) if day.holds(found, minute)} == {Day.TUE}


def test_what_a_simulation_assumes_stands_beside_what_it_is_about(tmp_path: Path) -> None:
    text = """\
clusters:
  a: {bootstrap: ["a:1"], simulate: {in_bytes_per_second: 1MB, out_bytes_per_second: 2MB}}
  b: {bootstrap: ["b:1"], simulate: {outages: [{after: 1h, lasts: 30m}]}}
links:
  - {from: a, to: b, simulate: {bytes_per_second: 5MB, round_trip_ms: 150, outages: [{after: 2h, lasts: 1h}]}}
routes:
  - from: a
    to: b
    topics: {include: [x]}
    simulate:
      bytes_per_second: 3MB
      by_hour: [0,0,0,0,0,0,0,0,0,0,0,0, 200,200,200,200,200,200,200,200,200,200,200,200]
      partitions: 400
      hottest_percent: 10
      batch_bytes: 64KiB
      behind_bytes: 1GB
      retention: 6h
"""
    topology = load(tmp_path, text)
    assert topology.clusters[ClusterName("a")].simulate == SimulatedCluster(
        in_bytes_per_second=1_000_000, out_bytes_per_second=2_000_000
    )
    hour = 3_600_000
    assert topology.clusters[ClusterName("b")].simulate.outages == (
        Outage(after_ms=hour, lasts_ms=hour // 2),
    )
    assert topology.links[0].simulate == SimulatedLink(
        bytes_per_second=5_000_000, round_trip_ms=150, outages=(Outage(after_ms=2 * hour, lasts_ms=hour),)
    )
    assert topology.routes[0].simulate == SimulatedRoute(
        bytes_per_second=3_000_000,
        by_hour=(0,) * 12 + (200,) * 12,
        partitions=400,
        hottest_percent=10,
        batch_bytes=65536,
        behind_bytes=10**9,
        retention_ms=6 * hour,
    )
    assert "has 1 numbers, a day has 24 hours" in problem_of_route(tmp_path, "simulate: {by_hour: [1]}")


def test_what_a_route_keeps_alike_can_be_left_to_people(tmp_path: Path) -> None:
    sync = load_route(tmp_path, "sync: {repair: [topics], config: [retention.ms]}").sync
    assert sync == SyncSpec(repair=(RepairKind.TOPICS,), config=("retention.ms",))
    told = problem_of_route(tmp_path, "sync: {config: [compression.type]}")
    assert told == (
        "sync.config[0]: 'compression.type' means something else at the destination: it is never carried over"
    )
