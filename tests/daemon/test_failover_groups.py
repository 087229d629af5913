"""Consumer groups of failover groups: where they go on when sides are switched, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.ledger.lane_id import LEDGER_TOPIC
from tests.daemon.conftest import mirrormaker, wait_until
from tests.daemon.failover_pair import SECONDS, TOPIC, Pair, switch, wait_count, wait_states
from tests.daemon.test_carried_groups import commit, committed, read, reader
from tests.daemon.test_failure_policies import delete_topic, require_replicas
from tests.daemon.test_mirror import create, produce


@pytest.mark.timeout(180)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_groups_are_carried_no_further_than_to_what_only_the_idle_side_has(pair: Pair, workers: int) -> None:
    pair.begin(10, resources={"workers": workers} if workers else {})
    produce(pair.standby, TOPIC, range(100, 105), 1)  # by a producer that has not heard where the group is
    produce(pair.primary, TOPIC, range(10, 20), 1)
    wait_count(pair.standby, 25)
    had = read(pair.primary, "readers", TOPIC, 20, start=0)

    def is_held(told: dict[str, Any]) -> bool:
        standings: dict[str, int] = told["groups"]["readers"]["partitions"]
        return standings == {"held": 1}

    pair.running.wait_for(lambda told: is_held(told["groups"]), "the daemon has looked at the standby")
    wait_until(lambda: committed(pair.standby, "readers", TOPIC)[0] == 10, "held")
    assert "group_held" in [event["name"] for event in pair.running.status()["events"]]
    pair.primary.kill_node(1)
    (group,) = switch("failover", pair.file, "--dry-run")["groups"]
    assert (group["continues_at"], group["read_again"], group["jumped"]) == (10, 10, None)
    switch("failover", pair.file, "--force")
    had += read(pair.standby, "readers", TOPIC, 15)
    assert set(had) == {*range(20), *range(100, 105)}


@pytest.mark.timeout(180)
def test_groups_that_go_on_behind_what_only_the_new_side_has_are_named_with_what_they_do_not_read(
    pair: Pair,
) -> None:
    pair.begin_beside(5, 10)
    commit(pair.primary, "readers-there", TOPIC, 3)
    wait_until(lambda: committed(pair.standby, "readers-there", TOPIC)[0] == 0, "held")
    commit(pair.standby, "readers-there", TOPIC, 12)
    commit(pair.primary, "readers", TOPIC, 10)
    five = {"first": 0, "last": 4, "records": 5}

    def places(told: dict[str, Any]) -> dict[str, tuple[int | None, dict[str, int] | None]]:
        return {each["group"]: (each["continues_at"], each["jumped"]) for each in told["groups"]}

    rehearsed = places(switch("failover", pair.file, "--dry-run"))
    assert rehearsed == {"readers": (0, None), "readers-there": (12, five)}
    reported = places(switch("failover", pair.file, "--dry-run", "--tail", "report"))
    assert reported == {"readers": (15, five), "readers-there": (12, five)}
    pair.primary.kill_node(1)
    forced = switch("failover", pair.file, "--dry-run")
    assert ([each["records"] for each in forced["tail"]], places(forced)["readers-there"]) == (
        [5],
        (12, five),
    )
    assert places(switch("failover", pair.file, "--force")["rehearsal"])["readers-there"] == (12, five)
    pair.primary.start_node(1)
    wait_until(lambda: mirrormaker("failover", str(pair.file), "orders").returncode == 0, "primary is back")
    switch("failback", pair.file)
    done = mirrormaker("failover", str(pair.file), "orders", "--tail", "copy", seconds=SECONDS).stdout
    assert "what only that side had" not in done, "it was copied when the sides were switched"


def test_a_rehearsal_tells_of_groups_what_the_switch_does_while_what_was_sent_is_not_written_down(
    pair: Pair,
) -> None:
    """At most once stores positions first, and writes down where records went a while later."""
    pair.begin(20, delivery="at_most_once")
    commit(pair.primary, "readers", TOPIC, 15)
    told = [switch("failover", pair.file, *options)["groups"] for options in (["--dry-run"], [])]
    places = [(each["continues_at"], each["standing"], each["read_again"]) for (each,) in told]
    assert places == [(15, "carried", 0)] * 2


def test_a_group_that_has_members_at_the_new_side_is_told_to_be_left_where_it_is(pair: Pair) -> None:
    pair.begin(10)
    member = reader(pair.standby, "readers")
    member.subscribe([TOPIC])
    wait_until(lambda: member.poll(0.1) is not None, "a member at the standby")
    commit(pair.primary, "readers", TOPIC, 6)
    rehearsed = mirrormaker("failover", str(pair.file), "orders", "--dry-run", seconds=SECONDS).stdout
    assert "group readers: orders-0 at 6 is not carried, it has members there" in rehearsed
    done = mirrormaker("failover", str(pair.file), "orders", seconds=SECONDS)
    assert "group readers: orders-0 at 6 is not carried, it has members there" in done.stdout
    assert "0 groups are carried" in done.stderr
    member.close()


@pytest.mark.timeout(180)
def test_groups_that_were_brought_back_over_the_end_of_a_transaction_did_not_go_on_by_themselves(
    pair: Pair,
) -> None:
    pair.begin(10, delivery="exactly_once")
    produce(pair.primary, TOPIC, range(10, 20), 1)
    assert read(pair.primary, "readers", TOPIC, 20, start=0) == list(range(20))
    pair.running.wait_copied()
    switch("failover", pair.file)
    assert read(pair.standby, "readers-behind", TOPIC, 10, start=0) == list(range(10))
    produce(pair.standby, TOPIC, range(20, 25), 1)
    switch("failback", pair.file)
    wait_states(pair.running, forth="running", back="standing by")
    both = {"readers": {"carried": 1}, "readers-behind": {"carried": 1}}

    def standings(told: dict[str, Any]) -> dict[str, Any]:
        return {name: each["partitions"] for name, each in told["groups"]["groups"].items()}

    told = pair.running.wait_for(lambda told: bool(standings(told)), "looked at")
    assert standings(told) == both
    assert "group_own" not in [event["name"] for event in told["events"]]
    assert read(pair.primary, "readers-behind", TOPIC, 15) == list(range(10, 25))
    assert read(pair.primary, "readers", TOPIC, 5) == list(range(20, 25))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("more", [0, 10], ids=["nothing", "more"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["killed", "lost"])
def test_a_group_among_copies_that_no_ledger_tells_of_misses_nothing_when_it_goes_back(
    pair: Pair, is_lost: bool, more: int
) -> None:
    """Their ledger is gone, or the process that copied was killed before anything could be written there; it
    tells of nothing, or of what came later.
    """
    if is_lost:
        pair.begin(100)
        assert pair.running.stop() == 0
        delete_topic(pair.standby, LEDGER_TOPIC)
    else:
        create(pair.standby, LEDGER_TOPIC, 1, **{"cleanup.policy": "compact"})
        require_replicas(pair.standby, LEDGER_TOPIC, 2)
        pair.begin(100, delivery="at_most_once")
        pair.running.kill()
        require_replicas(pair.standby, LEDGER_TOPIC, 1)
    pair.running.start()
    produce(pair.primary, TOPIC, range(100, 100 + more), 1)
    wait_count(pair.standby, 100 + more)
    switch("failover", pair.file)
    assert read(pair.standby, "readers", TOPIC, 40, start=0) == list(range(40))
    produce(pair.standby, TOPIC, range(100 + more, 120), 1)
    assert read(pair.standby, "readers-behind", TOPIC, 120, start=0) == list(range(120))
    wait_count(pair.primary, 120)
    rehearsed, done = [
        {each["group"]: each for each in switch("failback", pair.file, *options)["groups"]}
        for options in (["--dry-run"], [])
    ]
    places = {name: each["continues_at"] for name, each in done.items()}
    assert places == {"readers": 0, "readers-behind": 120}
    assert (done["readers"]["standing"], done["readers"]["read_again"]) == ("careful", 40)
    assert rehearsed["readers"] == done["readers"]
    assert read(pair.primary, "readers", TOPIC, 120) == list(range(120))
    produce(pair.primary, TOPIC, [120], 1)
    assert read(pair.primary, "readers-behind", TOPIC, 1) == [120]
