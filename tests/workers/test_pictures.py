"""Routes that several workers run, as one picture; and which worker runs what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.types import TopicPartition
from mirrormaker.console.metrics import metrics_text
from mirrormaker.reconcile.switches import IdleTail
from mirrormaker.reconcile.topology_file import TopologyText
from mirrormaker.route_description import starting_route
from mirrormaker.topology.model import Resources, Topology
from mirrormaker.workers.orders import (
    Be,
    GarbledLineError,
    Hold,
    Leave,
    Order,
    Run,
    decode_order,
    decode_picture,
    encode_order,
)
from mirrormaker.workers.pictures import EVENTS_MAX, merge_routes
from mirrormaker.workers.placement import count_workers, works_of_daemon, works_of_worker
from tests.reconcile.test_routes import cluster, work


def route(**told: Any) -> dict[str, Any]:
    return starting_route() | {"state": "running", **told}


def test_counts_are_added_up_and_partitions_put_together() -> None:
    merged = merge_routes(
        [
            route(
                counts={"bytes": 1, "errors": {"A": 1}}, partitions={"t-0": {}}, buffered_bytes=5, failures=1
            ),
            route(counts={"bytes": 2, "errors": {"A": 1, "B": 1}}, partitions={"t-1": {}}, buffered_bytes=6),
            starting_route(),
        ]
    )
    assert merged["counts"] == {"bytes": 3, "errors": {"A": 2, "B": 1}}
    assert merged["partitions"] == {"t-0": {}, "t-1": {}}
    assert (merged["buffered_bytes"], merged["failures"]) == (11, 1)


def test_a_partition_was_as_the_worker_that_had_it_last_saw_it() -> None:
    earlier, later = ({"looked_ms": at_ms, "source_end": at_ms, "waiting_since_ms": None} for at_ms in (5, 9))
    told = [route(left={"t-0": later, "t-1": earlier}), route(left={"t-0": earlier}), starting_route()]
    assert merge_routes(told)["left"] == {"t-0": later, "t-1": earlier}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("running", "running"), "running"),
        (("running", "failed", "starting"), "failed"),
        (("running", "starting"), "starting"),
        (("paused", "paused"), "paused"),
        (("paused", "superseded"), "superseded"),
    ],
)
def test_the_worst_state_is_that_of_the_route(states: tuple[str, ...], state: str) -> None:
    assert merge_routes([route(state=each) for each in states])["state"] == state


def test_what_several_say_is_said_once_and_events_come_in_their_order() -> None:
    events = [{"at_ms": at_ms, "name": "e", "details": {"number": at_ms}} for at_ms in range(EVENTS_MAX)]
    merged = merge_routes(
        [
            route(error="away", events=events[::2]),
            route(error="away", events=events[1::2], started_ms=7),
            route(error="refused", events=events[:1], pause={"by": "me"}),
        ]
    )
    assert merged["error"] == "away; refused"
    assert [event["at_ms"] for event in merged["events"]] == [0, *range(1, EVENTS_MAX)]
    assert (merged["started_ms"], merged["pause"]) == (7, {"by": "me"})


def test_an_event_that_all_workers_meet_is_told_as_often_as_by_one_of_them() -> None:
    def told(at_ms: int, topic: str = "t") -> dict[str, Any]:
        return {"at_ms": at_ms, "name": "topic_not_copied", "details": {"topic": topic}}

    merged = merge_routes([route(events=[told(3), told(9, "u")]), route(events=[told(2)])])
    assert merged["events"] == [told(2), told(9, "u")]
    merged = merge_routes([route(events=[told(3), told(7)]), route(events=[told(2)]), route(events=[])])
    assert merged["events"] == [told(3), told(7)]


def test_a_worker_that_has_just_begun_hides_no_halt_that_the_others_know() -> None:
    halts = [{"topic": "t", "partition": 0}]
    assert merge_routes([starting_route(), route(halts=halts)])["halts"] == halts


def test_groups_and_pages_of_all_workers_count_and_none_hides_the_trouble_of_another() -> None:
    def told(number: int, problem: str | None, groups: dict[str, Any]) -> dict[str, Any]:
        pages = {"lanes": 4, "pages": 6 + number, "pending_pages": number, "pages_given_up": number}
        return route(
            ledger={"problem": problem, **pages},
            groups={"problem": problem, "moved": 10 * number, "groups": groups},
        )

    merged = merge_routes(
        [
            told(1, "no right", {"etl": {"partitions": {"even": 1, "behind": 1}, "behind": 5}}),
            told(
                2,
                None,
                {"etl": {"partitions": {"even": 2}, "behind": 7}, "new": {"partitions": {}, "behind": 0}},
            ),
        ]
    )
    assert merged["ledger"] == {
        "problem": "no right",
        "lanes": 4,
        "pages": 8,
        "pending_pages": 3,
        "pages_given_up": 3,
    }
    assert (merged["groups"]["problem"], merged["groups"]["moved"]) == ("no right", 30)
    assert merged["groups"]["groups"] == {
        "etl": {"partitions": {"even": 3, "behind": 1}, "behind": 12},
        "new": {"partitions": {}, "behind": 0},
    }


def test_a_part_without_a_rule_is_put_together_by_what_it_is() -> None:
    merged = merge_routes(
        [
            {"new": {"a": 1}, "flag": False, "list": [1], "text": None},
            {"new": {"b": 2}, "flag": True},
            {"list": [2], "text": "said"},
        ]
    )
    assert merged == {"new": {"a": 1, "b": 2}, "flag": True, "list": [1, 2], "text": "said"}


def test_metrics_tell_of_workers() -> None:
    worker = {
        "number": 1,
        "pid": 7,
        "state": "running",
        "restarts": 3,
        "failures": 0,
        "problem": None,
        "started_ms": 0,
        "resident_bytes": 100,
        "cpu_seconds": 1.5,
        "partitions": {"r": 2},
    }
    down = worker | {"number": 2, "state": "down", "resident_bytes": None, "cpu_seconds": None}
    picture = {
        "at_ms": 0,
        "topology": {"generation": 1, "problem": None, "reloads": 0, "reload_failures": 0},
        "resident_bytes": 50,
        "cpu_seconds": 0.5,
        "clusters": {},
        "workers": [worker, down],
        "routes": {},
    }
    lines = metrics_text(picture).decode().splitlines()
    for line in (
        'mirrormaker_process_resident_bytes{worker="0"} 50.0',
        'mirrormaker_process_resident_bytes{worker="1"} 100.0',
        'mirrormaker_process_cpu_seconds_total{worker="1"} 1.5',
        'mirrormaker_worker_up{worker="1"} 1.0',
        'mirrormaker_worker_up{worker="2"} 0.0',
        'mirrormaker_worker_restarts_total{worker="2"} 3.0',
    ):
        assert line in lines


def topology(**workers: int) -> Topology:
    made = [work(name) for name in workers]
    routes = tuple(replace(each.route, resources=Resources(workers=workers[each.name])) for each in made)
    clusters = {found.name: found for found in (cluster("jfk"), cluster("aggregate"))}
    return Topology(clusters=clusters, routes=routes, data_dir=Path("data"))


def test_routes_with_one_worker_are_the_daemons_and_the_others_are_their_workers() -> None:
    told = topology(small=1, large=3, middle=2)
    assert set(works_of_daemon(told)) == {"small"}
    assert [set(works_of_worker(told, number)) for number in range(1, 5)] == [
        {"large", "middle"},
        {"large", "middle"},
        {"large"},
        set(),
    ]
    assert count_workers(told) == 3
    assert count_workers(topology(small=1)) == 0


@pytest.mark.parametrize(
    "order",
    [
        Be(number=3),
        Run(source=TopologyText(text="a: \n'ä'", file=Path("/etc/t.yaml"))),
        Hold(tails={"orders": IdleTail(revision=4, first={TopicPartition("a-1", 3): 7})}),
        Leave(),
    ],
)
def test_orders_are_understood(order: Order) -> None:
    line = encode_order(order)
    assert line.count(b"\n") == 1
    assert decode_order(line) == order


@pytest.mark.parametrize("line", [b"", b"[]", b'{"order": "run"}', b"\xff", b'{"order": "dance"}'])
def test_what_is_no_order_and_no_picture_is_refused(line: bytes) -> None:
    with pytest.raises(GarbledLineError):
        decode_order(line)
    with pytest.raises(GarbledLineError):
        decode_picture(line)
