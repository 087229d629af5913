"""What `status` shows."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from broker.types import TopicPartition
from mirrormaker.flow.lag import NO_LAG, Lag
from mirrormaker.flow.origin_registry import ORIGINS_TOPIC
from mirrormaker.flow.positions import POSITIONS_TOPIC
from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from mirrormaker.partition_status import PartitionStatus
from mirrormaker.reconcile.control import CONTROL_TOPIC
from mirrormaker.report import attention, format_bytes, render_json, render_text
from mirrormaker.status import RouteStatus, Status, TopologyStatus
from mirrormaker.timing_report import judge_objective, summarize_latency
from mirrormaker.topology.model import ClusterName, Objectives

BEHIND = Lag(messages=1_234_567, bytes=5 << 20, seconds=12.34)


def partition(
    state: str, problem: str | None = None, reason: str | None = None, lag: Lag = NO_LAG
) -> PartitionStatus:
    return PartitionStatus(
        source=TopicPartition("flights", 3),
        destination=TopicPartition("jfk.flights", 3),
        state=state,
        reason=reason,
        problem=problem,
        committed=10,
        end=10 + lag.messages,
        lag=lag,
    )


def route(*partitions: PartitionStatus, lag: Lag | None = BEHIND, problem: str | None = None) -> RouteStatus:
    return RouteStatus(
        name="jfk-to-aggregate",
        source=ClusterName("jfk"),
        destination=ClusterName("aggregate"),
        state="running",
        problem=problem,
        lag=lag,
        partitions=partitions,
        obstacles={"flights-x": "the name is too long"},
        counts={"bytes": 2048, "deep_batches": {"compacted": 3, "forced": 4}},
    )


def status(*routes: RouteStatus, topology_problem: str | None = None) -> Status:
    topology = TopologyStatus(generation=7, digest="abc", applied_at_ms=0, problem=topology_problem)
    return Status(topology=topology, routes=routes)


def test_of_every_topic_that_a_route_keeps_it_is_told_what_goes_with_it() -> None:
    for topic in (CONTROL_TOPIC, LEDGER_TOPIC, ORIGINS_TOPIC, POSITIONS_TOPIC):
        lost = {topic: {"cluster": "aggregate", "at_ms": 0}}
        assert f"{topic} at 'aggregate' was deleted" in attention([replace(route(), begun_anew=lost)])[0]


def test_topics_that_the_mirror_keeps_and_that_began_anew_are_told_with_what_went_with_them() -> None:
    lost = {"__mirrormaker_ledger": {"cluster": "aggregate", "at_ms": 0}}
    told = attention([replace(route(), begun_anew=lost)])
    assert told[0] == (
        "jfk-to-aggregate: __mirrormaker_ledger at 'aggregate' was deleted, and began anew "
        "1970-01-01T00:00:00+00:00: audits take what was copied before for what came before the route's start"
    )
    assert render_json(status(replace(route(), begun_anew=lost)))["routes"][0]["begun_anew"] == lost


def test_a_route_is_one_line_of_figures() -> None:
    shown = io.StringIO()
    render_text(status(route(partition("copying"))), shown)
    line = shown.getvalue().splitlines()[1]
    assert line.split() == [
        "jfk-to-aggregate",
        "running",
        "1",
        "1,234,567",
        "5.0",
        "MiB",
        "12.3",
        "-",
        "2.0",
        "KiB",
        "7",
    ]


def test_a_route_that_is_asked_for_is_shown_partition_by_partition() -> None:
    behind = partition("halted", reason="oversize", lag=BEHIND)
    unknown = replace(partition("unassigned"), committed=-1, end=-1)
    shown = io.StringIO()
    render_text(status(route(behind, unknown)), shown, by_partition=True)
    told = [line.split() for line in shown.getvalue().splitlines()[3:5]]
    assert " ".join(told[0]) == (
        "flights-3 jfk.flights-3 halted (oversize) 10 1234577 1,234,567 5.0 MiB 12.3"
    )
    assert told[1][:5] == ["flights-3", "jfk.flights-3", "unassigned", "?", "?"]


def test_what_is_not_known_is_a_question_mark() -> None:
    shown = io.StringIO()
    render_text(status(route(lag=None), route(lag=Lag(messages=1, bytes=None, seconds=None))), shown)
    assert shown.getvalue().splitlines()[1].split()[3:6] == ["?", "?", "?"]
    assert shown.getvalue().splitlines()[2].split()[3:6] == ["1", "?", "?"]


def test_only_what_does_not_go_as_it_should_needs_attention() -> None:
    healthy = RouteStatus(
        name="a",
        source=ClusterName("x"),
        destination=ClusterName("y"),
        state="running",
        problem=None,
        lag=NO_LAG,
    )
    assert attention([healthy]) == []
    troubled = route(
        partition("copying"),
        partition("halted", "TOPIC_AUTHORIZATION_FAILED", "unauthorized"),
        problem="away",
    )
    assert attention([troubled]) == [
        "jfk-to-aggregate: away",
        "jfk-to-aggregate: flights-x is not copied: the name is too long",
        "jfk-to-aggregate: flights-3 is halted (unauthorized): TOPIC_AUTHORIZATION_FAILED",
    ]
    owned = [replace(healthy, owner="a@example.com"), replace(troubled, owner="b@example.com")]
    assert attention(owned) == [*attention([troubled]), "jfk-to-aggregate: ask b@example.com"]


def halt(partition: int, reason: str, problem: str) -> dict[str, object]:
    said = {"at_ms": 0, "stops_route": False, "released": None}
    return {"topic": "flights", "partition": partition, "reason": reason, "problem": problem, **said}


def test_what_stands_is_told_once_with_what_helps() -> None:
    standing = replace(
        route(partition("halted", "records are gone", "source_gap")),
        halts=(halt(3, "source_gap", "records are gone"), halt(-1, "topic_deleted", "it was deleted")),
        obstacles={"flights": "it was deleted", "flights-x": "the name is too long"},
    )
    since = "since 1970-01-01T00:00:00+00:00"
    go_on = "to go on: mirrormaker resume FILE jfk-to-aggregate --topic flights"
    lines = [
        f"jfk-to-aggregate: flights-3 stands {since}: source_gap: records are gone; {go_on} --partition 3",
        f"jfk-to-aggregate: flights stands {since}: topic_deleted: it was deleted; {go_on}",
        "jfk-to-aggregate: flights-x is not copied: the name is too long",
    ]
    assert attention([standing]) == lines
    others = replace(standing, halts=(halt(3, "oversize", "too large"), halt(4, "source_gap", "")))
    assert "jfk-to-aggregate: flights-3 is halted (source_gap): records are gone" in attention([others])
    assert "jfk-to-aggregate: flights is not copied: it was deleted" in attention([others])


def test_programs_get_plain_numbers() -> None:
    (told,) = render_json(status(route(partition("copying", lag=BEHIND))))["routes"]
    assert told["lag"] == {"messages": 1_234_567, "bytes": 5 << 20, "seconds": 12.34}
    assert told["partitions"][0]["topic"] == "flights"
    assert told["owner"] is None
    assert render_json(status(route(lag=None)))["routes"][0]["lag"] is None


def told_of(**recent: dict[str, int]) -> dict[str, object]:
    return {"latency": {basis: {"recent": counts} for basis, counts in recent.items()}}


def test_latency_is_told_by_percentiles_and_by_what_its_timestamps_are() -> None:
    summary = summarize_latency(told_of(create={"12": 989, "20": 10, "40": 1}))
    assert summary == {
        "basis": "create",
        "records": 1000,
        "p50_seconds": 0.008,
        "p99_seconds": 0.032,
        "p999_seconds": 0.032,
    }
    mixed = summarize_latency(told_of(create={"12": 1}, append={"20": 1}))
    assert mixed is not None
    assert (mixed["basis"], mixed["p99_seconds"]) == ("mixed", 0.032)
    assert summarize_latency(told_of(create={})) is None
    assert summarize_latency({}) is None
    shown = io.StringIO()
    render_text(status(replace(route(), latency=summary)), shown)
    assert "8 ms / 32 ms / 32 ms" in shown.getvalue()


def test_what_is_late_and_what_will_be_lost_needs_attention() -> None:
    endangered = replace(
        partition("copying", lag=BEHIND),
        retention={"seconds": 2520.0, "deleted_by": "retention.ms", "in_danger": True},
    )
    late = replace(
        route(endangered),
        obstacles={},
        objective={"lag_seconds": 5, "state": "breached", "lag": 12.34},
    )
    assert attention([late]) == [
        "jfk-to-aggregate: lags 12.3 s, its objective is 5 s",
        "jfk-to-aggregate: flights-3 loses what is not copied in 42 min at this rate (retention.ms)",
    ]


def test_where_no_daemon_tells_of_the_objective_the_lag_does() -> None:
    promised = Objectives(lag_seconds=10)
    states = {
        seconds: judge_objective(promised, {}, Lag(messages=1, bytes=1, seconds=seconds))
        for seconds in (9.0, 11.0, None)
    }
    assert [told and told["state"] for told in states.values()] == ["kept", "breached", "unknown"]
    assert judge_objective(Objectives(), {}, NO_LAG) is None
    told = {"lag_seconds": 10, "state": "breached", "lag": None}
    assert judge_objective(promised, {"objective": told}, NO_LAG) == told
    no_more = {"lag_seconds": None, "state": "none", "lag": None, "breaches": 3}
    assert judge_objective(Objectives(), {"objective": no_more}, NO_LAG) is None
    found = judge_objective(promised, {"objective": no_more}, Lag(messages=1, bytes=1, seconds=11.0))
    assert found is not None
    assert found["state"] == "breached"


@pytest.mark.parametrize(
    ("state", "lag", "elsewhere", "judged"),
    [
        ("kept", 3.0, 500.0, ("breached", 500.0)),
        ("unknown", None, 500.0, ("breached", 500.0)),
        ("unknown", None, 2.0, ("kept", 2.0)),
        ("unknown", None, None, ("unknown", None)),
        ("kept", 3.0, 2.0, ("kept", 3.0)),
        ("breached", 30.0, 2.0, ("breached", 30.0)),
    ],
)
def test_partitions_that_the_daemon_here_does_not_have_count_for_the_objective(
    state: str, lag: float | None, elsewhere: float | None, judged: tuple[str, float | None]
) -> None:
    told = {"objective": {"lag_seconds": 10, "state": state, "lag": lag, "breaches": 1}}
    found = judge_objective(Objectives(lag_seconds=10), told, Lag(messages=1, bytes=1, seconds=elsewhere))
    assert found is not None
    assert (found["state"], found["lag"], found["breaches"]) == (*judged, 1)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (9 << 50, "9216.0 TiB")],
)
def test_sizes_have_binary_units(size: int, shown: str) -> None:
    assert format_bytes(size) == shown


def test_a_file_that_is_not_in_force_is_told_with_its_problems() -> None:
    shown = io.StringIO()
    long = "worse " * 40 + "x"
    render_text(status(topology_problem=f"mesh.yaml:3: bad\nmesh.yaml:100: {long}"), shown)
    assert shown.getvalue().splitlines()[-3:] == [
        "the file is not in force: generation 7 (abc) goes on",
        "  mesh.yaml:3: bad",
        f"  mesh.yaml:100: {long}",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("size", [20, 200])
def test_names_and_figures_are_shown_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name, lag = "n" * size, Lag(messages=123_456_789_012, bytes=1 << 45, seconds=1.5)
    narrow, piped = Terminal(), io.StringIO()
    for stream in (narrow, piped):
        render_text(status(replace(route(lag=lag), name=name)), stream)
    assert "…" not in narrow.getvalue()
    assert f"\n{name}  running  " in piped.getvalue()


@pytest.mark.parametrize(
    "at_ms", [1_790_000_000_000_000_000, 10**400, -(10**18)], ids=["nanoseconds", "endless", "before all"]
)
def test_a_pause_of_a_time_in_other_units_is_told_all_the_same(at_ms: int) -> None:
    paused = replace(route(), pause={"at_ms": at_ms, "by": "ops", "reason": None})
    assert attention([paused])[0] == f"jfk-to-aggregate: paused by ops since {at_ms} ms"
