"""Failover groups of which a topic was deleted and made anew at the idle side, in a cluster that lived on."""

from __future__ import annotations

import asyncio

import pytest

from broker.client.admin import Admin
from broker.client.cluster import Cluster
from broker.embedded import EmbeddedCluster
from broker.types import TopicPartition
from tests.daemon.conftest import mirrormaker, wait_until
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


def delete_before(cluster: EmbeddedCluster, offset: int) -> None:
    """As retention does."""

    async def delete() -> None:
        async with Cluster(cluster.bootstrap) as at:
            await Admin(at).delete_records({TopicPartition(TOPIC, 0): offset})

    asyncio.run(delete())


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


@pytest.mark.timeout(180)
def test_what_was_lost_with_a_topic_of_the_idle_side_is_told_with_the_groups_that_miss_it(pair: Pair) -> None:
    pair.begin(10)
    switch("failover", pair.file)
    produce(pair.standby, TOPIC, range(10, 30), 1)
    wait_count(pair.primary, 30)
    make_anew(pair.primary, range(0))
    produce(pair.standby, TOPIC, range(30, 35), 1)
    wait_count(pair.primary, 5)
    delete_before(pair.standby, 4)
    places = {"readers": 30, "readers-behind": 2, "readers-between": 15}
    for group, at in places.items():
        commit(pair.standby, group, TOPIC, at)
    anew = "topic orders at primary was made anew: what had come from there to standby stays there alone"
    missed = {
        "readers": None,
        "readers-behind": {"first": 4, "last": 29, "records": 26},
        "readers-between": {"first": 15, "last": 29, "records": 15},
    }
    rehearsed = switch("failback", pair.file, "--dry-run")
    assert anew in rehearsed["notes"]
    assert rehearsed["lost"] == [
        {"topic": TOPIC, "partition": 0, "first": 4, "last": 29, "records": 26},
    ]
    assert {each["group"]: each["missed"] for each in rehearsed["groups"]} == missed
    assert rehearsed["records_read_again"] == 0, "what was read there before is gone"
    told = mirrormaker("failback", str(pair.file), "orders", "--dry-run").stdout
    assert "no more at primary: orders-0: 26 records, offsets 4 to 29, which nobody copies again\n" in told
    assert "it misses what it has not read here at offsets 15 to 29 (15 records at the most)" in told
    for verb, *options in (["pause"], ["seek", "--to", "10"], ["resume"]):
        moved = mirrormaker(verb, str(pair.file), "back", *options)
        assert moved.returncode == 0, moved.stderr
    done = switch("failback", pair.file)
    assert {each["group"]: each["missed"] for each in done["groups"]} == {
        "readers": None,
        "readers-behind": {"first": 4, "last": 9, "records": 6},
        "readers-between": None,
    }
    assert records_at(pair.primary) == [*range(30, 35), *range(10, 35)]
    assert switch("failover", pair.file, "--dry-run")["lost"] == []


@pytest.mark.timeout(120)
def test_what_was_lost_with_a_topic_of_the_standby_is_told_when_the_primary_is_gone(pair: Pair) -> None:
    pair.begin(20)
    make_anew(pair.standby, range(0))
    produce(pair.primary, TOPIC, range(20, 25), 1)
    wait_count(pair.standby, 5)
    commit(pair.primary, "readers", TOPIC, 5)
    wait_until(lambda: committed(pair.standby, "readers", TOPIC)[0] == 0, "carried")
    pair.primary.kill_node(1)
    done = switch("failover", pair.file, "--force")["rehearsal"]
    assert [(each["first"], each["last"], each["records"]) for each in done["lost"]] == [(0, 19, 20)]
    assert [each["missed"] for each in done["groups"]] == [{"first": 5, "last": 19, "records": 15}]
