"""Audits of what only one side of a failover group had, where a switch has noted it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.daemon.conftest import MirrorFactory, mirrormaker, wait_until
from tests.daemon.failover_pair import TOPIC, Pair, refused, switch, wait_count
from tests.daemon.test_mirror import create, produce


@pytest.mark.timeout(240)
def test_a_tail_that_was_noted_before_anything_was_copied_is_told_as_noted(
    cluster: ClusterFactory, mirror: MirrorFactory, tmp_path: Path
) -> None:
    """The standby had records of its own before the first copy came."""
    pair = Pair(cluster, mirror, tmp_path)
    create(pair.standby, TOPIC, 1)
    produce(pair.standby, TOPIC, range(5), 1)
    pair.prepare(range(5, 15))
    pair.running.start()
    wait_count(pair.standby, 15)
    wait_until(lambda: "5 records, offsets 0 to 4" in refused("failover", pair.file, "orders"), "told")
    assert switch("failover", pair.file, "--tail", "report")["cluster"] == "standby"
    assert back(pair.file) == back(pair.file, "--deep") == (0, {"noted": 5, "returned": 10})
    produce(pair.standby, TOPIC, range(15, 20), 1)
    wait_count(pair.primary, 15)
    assert switch("failback", pair.file)["cluster"] == "primary"
    produce(pair.primary, TOPIC, range(20, 25), 1)
    wait_count(pair.standby, 25)
    pair.end()
    assert back(pair.file) == back(pair.file, "--deep") == (5, {"noted": 5, "returned": 15})


def back(file: Path, *options: str) -> tuple[int, dict[str, int]]:
    """What an audit says of the way back: what is equal, and what is not compared but others' records."""
    done = mirrormaker("audit", str(file), "--output", "json", "--route", "back", *options)
    (route,) = json.loads(done.stdout)["routes"]
    assert (done.returncode, route["result"]) == (0, "equal"), route
    return route["equal"], {kind: count for kind, count in route["outcomes"].items() if kind != "others"}
