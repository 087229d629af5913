"""Failover groups of which a topic was deleted and made anew at the idle side, in a cluster that lived on."""

from __future__ import annotations

import pytest

from broker.embedded import EmbeddedCluster
from tests.daemon.conftest import wait_until
from tests.daemon.failover_pair import (
    TOPIC,
    Pair,
    records_at,
    refused,
    status_text,
    switch,
    wait_count,
    wait_states,
)
from tests.daemon.test_carried_groups import commit, committed
from tests.daemon.test_failure_policies import delete_topic
from tests.daemon.test_mirror import create, produce


def make_anew(cluster: EmbeddedCluster, values: range) -> None:
    """With these records of a producer that has not heard where the group is."""
    delete_topic(cluster, TOPIC)
    create(cluster, TOPIC, 1)
    produce(cluster, TOPIC, values, 1)


@pytest.mark.timeout(180)
def test_what_is_written_to_a_topic_that_was_made_anew_at_the_standby_is_found_and_holds_groups(
    pair: Pair,
) -> None:
    pair.begin(20)
    commit(pair.primary, "readers", TOPIC, 20)
    wait_until(lambda: committed(pair.standby, "readers", TOPIC)[0] == 20, "carried")
    assert pair.running.stop() == 0
    make_anew(pair.standby, range(100, 103))
    produce(pair.primary, TOPIC, range(20, 25), 1)
    commit(pair.primary, "readers", TOPIC, 25)
    pair.running.start()
    wait_count(pair.standby, 8)
    wait_until(lambda: "standby has 3 records that never came" in status_text(pair.file), "told")
    wait_until(lambda: committed(pair.standby, "readers", TOPIC)[0] == 0, "held")
    assert "orders-0: 3 records, offsets 0 to 2" in refused("failover", pair.file, "orders")
    assert switch("failover", pair.file, "--tail", "copy")["stage"] == "settled"
    wait_count(pair.primary, 28)
    assert set(records_at(pair.primary)) == {*range(25), *range(100, 103)}
    assert set(records_at(pair.standby)) == {*range(20, 25), *range(100, 103)}


@pytest.mark.timeout(180)
def test_what_is_written_to_a_topic_that_was_made_anew_at_the_primary_meanwhile_comes_to_the_standby(
    pair: Pair,
) -> None:
    pair.begin(0)
    switch("failover", pair.file)
    produce(pair.standby, TOPIC, range(20), 1)
    wait_count(pair.primary, 20)
    switch("failback", pair.file)
    switch("failover", pair.file)
    wait_states(pair.running, forth="standing by", back="running")
    make_anew(pair.primary, range(100, 103))
    produce(pair.standby, TOPIC, range(20, 25), 1)
    wait_count(pair.primary, 8)
    assert "orders-0: 3 records, offsets 0 to 2" in refused("failback", pair.file, "orders")
    assert switch("failback", pair.file, "--tail", "copy")["stage"] == "settled"
    wait_count(pair.standby, 28)
    assert set(records_at(pair.standby)) == {*range(25), *range(100, 103)}
