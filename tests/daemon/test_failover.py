"""Failover groups switched there and back, between real clusters, by the commands that people use."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.loopback import free_ports
from mirrormaker.failover.fence import close_topics
from mirrormaker.reconcile.control import CONTROL_TOPIC
from tests.conftest import ClusterFactory
from tests.daemon.conftest import PATIENCE_SECONDS, mirrormaker, wait_until
from tests.daemon.failover_pair import (
    CLOSED,
    KILLED,
    SECONDS,
    TOPIC,
    Pair,
    ask,
    batch_limit,
    begun,
    group_file,
    kill_at_write,
    open_transaction,
    records_at,
    refused,
    states,
    status_text,
    stopped_at_write,
    switch,
    wait_count,
    wait_states,
)
from tests.daemon.test_carried_groups import commit, committed, read
from tests.daemon.test_failure_policies import delete_topic, require_replicas
from tests.daemon.test_mirror import create, produce

TRANSACTIONS_TOPIC = "__transaction_state"


@pytest.mark.timeout(240)
def test_a_group_switches_to_its_standby_and_back_with_every_record_once_at_both_sides(pair: Pair) -> None:
    (port,) = free_ports(1)
    pair.prepare(range(100), options=("--http", str(port)))
    file, running = pair.file, pair.running
    said = refused("failover", file, "orders", "--timeout", "3")
    assert "no daemon runs the route 'forth', none has come in 3000 ms" in said
    running.start()
    wait_states(running, forth="running", back="standing by")
    had = read(pair.primary, "readers", TOPIC, 30, start=0)
    wait_count(pair.standby, 100)

    assert "did you mean 'orders'?" in refused("failover", file, "order")
    assert "is at 'primary' already" in refused("failback", file, "orders")
    rehearsed = switch("failover", file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["to"]) == (True, "standby")
    assert [(each["group"], each["at"], each["continues_at"]) for each in rehearsed["groups"]] == [
        ("readers", 30, 30)
    ]
    assert states(running) == {"forth": "running", "back": "standing by"}

    produce(pair.primary, TOPIC, range(100, 120), 1)
    assert kill_at_write(2, "failover", file).returncode == KILLED, "recorded at one side only"
    done = switch("failover", file)
    assert (done["cluster"], done["stage"], done["fenced"]) == ("standby", "settled", [])
    wait_states(running, forth="standing by", back="running")
    assert "is at 'standby' already" in refused("failover", file, "forth")
    sought = mirrormaker("seek", str(file), "forth", "--to", "earliest")
    assert (sought.returncode, sought.stdout) == (1, "")
    assert "the route 'forth' stands by, as the failover group 'orders' is at 'standby'" in sought.stderr
    notes = switch("failover", file, "--dry-run")["notes"]
    assert any("would be refused: the group 'orders' is at 'standby' already" in note for note in notes)
    produce(pair.standby, TOPIC, range(120, 150), 1)
    had += read(pair.standby, "readers", TOPIC, 100)
    wait_count(pair.primary, 150)
    running.kill()
    assert states(running) == {"forth": "standing by", "back": "stopped"}, "told by the clusters"
    assert "failover group orders: is at work at standby, epoch 1" in mirrormaker("plan", str(file)).stdout
    rehearsed = switch("failback", file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["to"]) == (True, "primary")
    running.start()
    produce(pair.standby, TOPIC, range(150, 160), 1)
    wait_until(lambda: running.log.read_text().count("\nhttp\t") == 2, "served again")

    assert json.loads(ask(port, "/failover-groups/orders?to=home"))["to"] == "primary"
    done = json.loads(ask(port, "/failover-groups/orders/failback?timeout=30", b""))
    assert (done["cluster"], done["epoch"]) == ("primary", 2)
    metrics = ask(port, "/metrics")
    wanted = 'mirrormaker_failover_side{cluster="primary",group="orders",stage="settled"} 1.0'
    wait_until(lambda: wanted in ask(port, "/metrics"), metrics)
    wait_states(running, forth="running", back="standing by")
    produce(pair.primary, TOPIC, range(160, 170), 1)
    had += read(pair.primary, "readers", TOPIC, 40)
    assert had == list(range(170))
    wait_count(pair.standby, 170)
    assert records_at(pair.primary) == records_at(pair.standby) == list(range(170))


def test_a_primary_can_have_the_way_back_begun_in_transactions_before_it_loses_a_node(pair: Pair) -> None:
    async def names() -> set[str]:
        async with Cluster(pair.primary.bootstrap) as opened:
            return set((await opened.refresh()).topics)

    pair.begin(10, delivery="exactly_once")
    wait_until(lambda: TRANSACTIONS_TOPIC in asyncio.run(names()), "a topic of transactions at the primary")


def test_a_switch_waits_for_a_daemon_that_is_only_coming_to_work(pair: Pair) -> None:
    pair.prepare(range(10))
    with begun("failover", pair.file) as command:
        assert command.stderr is not None
        told = iter(command.stderr.readline, "")
        assert any("waiting for a daemon that runs the route 'forth'" in line for line in told)
        pair.running.start()
        _, rest = command.communicate(timeout=SECONDS)
        assert command.returncode == 0, rest
    assert records_at(pair.standby) == list(range(10))


@pytest.mark.timeout(240)
@pytest.mark.long
@pytest.mark.parametrize("choice", ["copy", "report"])
def test_a_primary_that_is_killed_comes_back_and_what_only_it_had_is_found(pair: Pair, choice: str) -> None:
    primary, standby = pair.primary, pair.standby
    pair.begin(50)
    file, running = pair.file, pair.running
    commit(primary, "readers", TOPIC, 40)
    wait_until(lambda: committed(standby, "readers", TOPIC)[0] == 40, "the group is carried")
    running.wait_for(lambda told: told["lag"]["messages"] == 0, "copied")
    assert running.stop() == 0
    produce(primary, TOPIC, range(50, 58), 1)  # nobody copies it
    primary.kill_node(1)
    running.start()
    assert "say --force" in refused("failover", file, "orders")
    rehearsed = switch("failover", file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["partitions"][0]["copied_to"]) == (False, 50)
    told = mirrormaker("failover", str(file), "orders", "--dry-run").stdout
    assert re.search(r"not copied yet: 0 records as of \d+ s ago, and what came to primary since\n", told)
    (group,) = rehearsed["groups"]
    assert (group["group"], group["at"], group["continues_at"], group["read_again"]) == (
        "readers",
        40,
        40,
        10,
    )
    done = switch("failover", file, "--force")
    assert (done["cluster"], done["stage"], done["forced"]) == ("standby", "away", True)
    assert "is still away" in refused("failover", file, "orders")
    had = read(standby, "readers", TOPIC, 10)
    produce(standby, TOPIC, range(58, 70), 1)
    had += read(standby, "readers", TOPIC, 12)

    primary.start_node(1)
    wait_until(
        lambda: "orders-0: 8 records, offsets 50 to 57" in refused("failover", file, "orders"), "found"
    )
    wait_until(lambda: states(running)["back"] == "standing by", "back stands by")
    wait_until(lambda: "primary has 8 records that never came" in status_text(file), "told by the daemon")
    rehearsed = switch("failback", file, "--dry-run")
    assert (rehearsed["records_missing"], [each["records"] for each in rehearsed["tail"]]) == (12, [8])
    (group,) = rehearsed["groups"]
    assert (group["continues_at"], group["read_again"], group["standing"]) == (50, 12, "held")
    done = switch("failback", file, "--tail", choice)
    if choice == "copy":
        assert done["groups"][0]["continues_at"] == 50
    assert done["cluster"] == "primary"
    wait_states(running, forth="running", back="standing by")
    assert "never came" not in status_text(file), "that is settled"
    produce(primary, TOPIC, range(70, 80), 1)
    wait_count(standby, 80 if choice == "copy" else 72)
    assert records_at(primary) == list(range(80))
    tail = list(range(50, 58)) if choice == "copy" else []
    assert records_at(standby) == [*range(50), *range(58, 70), *tail, *range(70, 80)]
    had += read(primary, "readers", TOPIC, 30 if choice == "copy" else 10)
    assert {*had, *range(50, 58)} == set(range(40, 80)), "nothing else is missed"
    if choice == "copy":
        assert set(had) == set(range(40, 80))
    for options in ([], ["--deep"]):
        audited = mirrormaker("audit", str(file), *options)
        assert audited.returncode == 0, audited.stdout


def test_why_groups_were_not_carried_is_told_no_more_once_nobody_carries_them(pair: Pair) -> None:
    pair.begin(10)
    commit(pair.primary, "readers", TOPIC, 5)
    wait_until(lambda: committed(pair.standby, "readers", TOPIC)[0] == 5, "the group is carried")
    pair.primary.kill_node(1)
    told = "forth: groups are not carried over"
    wait_until(lambda: told in status_text(pair.file), "told")
    switch("failover", pair.file, "--force")
    pair.running.wait_for(lambda route: route["state"] == "standing by", "stands by")
    assert told not in status_text(pair.file)


@pytest.mark.long
def test_what_a_primary_has_is_told_as_it_is_where_it_can_only_be_read(pair: Pair) -> None:
    pair.begin(50)
    assert pair.running.stop() == 0
    produce(pair.primary, TOPIC, range(50, 58), 1)
    require_replicas(pair.primary, CONTROL_TOPIC, 2)
    rehearsed = switch("failover", pair.file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["records_missing"]) == (False, 8)
    assert "has fewer replicas in sync than 'min.insync.replicas' says" in rehearsed["problem"]
    done = switch("failover", pair.file, "--force")
    assert (done["cluster"], done["stage"]) == ("standby", "away")
    assert "the switch cannot be recorded there" in done["rehearsal"]["problem"]
    (missing,) = done["rehearsal"]["partitions"]
    assert (missing["records"], missing["end"], missing["age_ms"]) == (8, 58, 0)


@pytest.mark.timeout(120)
def test_what_was_written_at_the_standby_before_the_first_copy_is_asked_about_and_comes_back(
    pair: Pair,
) -> None:
    pair.begin_beside(5, 10)
    assert "orders-0: 5 records, offsets 0 to 4" in refused("failover", pair.file, "orders")
    (why,) = switch("failover", pair.file, "--dry-run")["refused"]
    assert "standby has records that never came to the other side: say --tail copy" in why
    assert switch("failover", pair.file, "--dry-run", "--tail", "report")["refused"] == []
    wait_until(lambda: "standby has 5 records that never came" in status_text(pair.file), "told")
    assert switch("failover", pair.file, "--tail", "copy")["cluster"] == "standby"
    wait_count(pair.primary, 15)
    assert set(records_at(pair.primary)) == set(records_at(pair.standby)) == set(range(15))


def test_a_topic_that_is_paused_and_not_copied_is_told_before_anything_is_closed(pair: Pair) -> None:
    pair.prepare(range(10))
    file = pair.file
    assert mirrormaker("pause", str(file), "forth", "--topic", TOPIC).returncode == 0
    said = refused("failover", file, "orders")
    assert "topic 'orders' of route 'forth' is paused and has not copied everything" in said
    assert "is fenced" not in said
    (why,) = switch("failover", file, "--dry-run")["refused"]
    assert why in said


@pytest.mark.timeout(240)
@pytest.mark.long
def test_a_switch_whose_new_side_is_lost_on_its_way_is_taken_back_by_force(pair: Pair) -> None:
    pair.begin(10)
    assert kill_at_write(6, "failover", pair.file).returncode == KILLED
    wait_until(lambda: pair.running.status()["switch"]["stage"] == "switching", "all is copied")
    pair.standby.kill_node(1)
    assert "end that first, or say --force" in refused("failback", pair.file, "orders")
    done = switch("failback", pair.file, "--force")
    assert (done["cluster"], done["stage"], done["fenced"]) == ("primary", "away", [])
    produce(pair.primary, TOPIC, range(10**20, 10**20 + 5), 1)  # too large for a side that is closed
    pair.standby.start_node(1)
    wait_until(
        lambda: mirrormaker("failback", str(pair.file), "orders").returncode == 0, "the standby is back"
    )
    wait_states(pair.running, forth="running", back="standing by")
    wait_count(pair.standby, 15)
    assert records_at(pair.primary) == records_at(pair.standby)


@pytest.mark.timeout(180)
def test_a_primary_that_is_made_anew_after_a_forced_switch_gets_all_that_the_standby_has(
    pair: Pair, cluster: ClusterFactory, tmp_path: Path
) -> None:
    primary, standby, rebuilt = pair.primary, pair.standby, cluster("rebuilt")
    pair.begin(10)
    running = pair.running
    switch("failover", running.file)
    produce(standby, TOPIC, range(10, 15), 1)
    wait_count(primary, 15)
    switch("failback", running.file)
    produce(primary, TOPIC, range(15, 20), 1)
    wait_count(standby, 20)
    assert running.stop() == 0
    primary.kill_node(1)
    switch("failover", running.file, "--force")
    produce(standby, TOPIC, range(20, 25), 1)
    commit(standby, "readers", TOPIC, 3)

    group_file(tmp_path, {"primary": rebuilt, "standby": standby})
    rehearsals = [switch("failback", running.file, "--dry-run")]
    create(rebuilt, TOPIC, 1)
    rehearsals.append(switch("failback", running.file, "--dry-run"))
    for rehearsed in rehearsals:
        assert rehearsed["records_missing"] == 25
        assert [(each["group"], each["at"], each["follows_copy"]) for each in rehearsed["groups"]] == [
            ("readers", 3, True)
        ]
    running.start()
    assert switch("failover", running.file)["stage"] == "settled"
    wait_count(rebuilt, 25)
    switch("failback", running.file)
    assert records_at(rebuilt) == list(range(25))
    assert committed(rebuilt, "readers", TOPIC)[0] == 3


@pytest.mark.timeout(120)
def test_a_command_that_was_stopped_while_another_ended_its_work_leaves_no_topic_closed(pair: Pair) -> None:
    pair.begin(10)
    with stopped_at_write(3, "failover", pair.file) as stopped:
        assert switch("failover", pair.file)["cluster"] == "standby"
        stopped.send_signal(signal.SIGCONT)
        told = stopped.communicate(timeout=SECONDS)[1]
    assert "AlterConfigs" in told, "stopped before it closed anything"
    assert "was switched by another command meanwhile" in told
    assert batch_limit(pair.primary) != CLOSED

    async def close() -> None:
        """As a command that is killed at that moment."""
        async with Cluster(pair.primary.bootstrap) as at_primary:
            await close_topics(at_primary, [TOPIC])

    asyncio.run(close())
    assert batch_limit(pair.primary) == CLOSED
    told = refused("failover", pair.file, "orders")
    assert "primary was left closed by a command that was stopped: open again are orders" in told
    assert batch_limit(pair.primary) != CLOSED


@pytest.mark.timeout(120)
def test_a_forced_switch_leaves_behind_what_cannot_be_copied_in_time_and_finds_it_later(pair: Pair) -> None:
    pair.begin(10)
    producer = open_transaction(pair.primary, 10)
    done = switch("failover", pair.file, "--force", "--timeout", "2")
    assert (done["cluster"], done["stage"], done["fenced"]) == ("standby", "away", [TOPIC])
    producer.commit_transaction(30)
    asked = "primary has records that never came to the other side: say --tail copy"
    assert asked in refused("failover", pair.file, "orders")
    rehearsed = switch("failover", pair.file, "--dry-run")
    assert (rehearsed["settles"], [each["records"] for each in rehearsed["tail"]]) == (True, [1])
    assert [why.partition(" to have")[0] for why in rehearsed["refused"]] == [asked]
    for choice, becomes in (("report", "stays there, and is noted"), ("copy", "is copied")):
        told = mirrormaker("failover", str(pair.file), "orders", "--dry-run", "--tail", choice)
        assert (told.returncode, told.stdout.splitlines()[:2]) == (
            0,
            [
                f"orders: at standby, and primary is back: what only it has {becomes}",
                "  only at primary: orders-0: 1 records, offsets 10 to 10",
            ],
        )
    done = switch("failover", pair.file, "--tail", "copy")
    assert (done["stage"], done["fenced"]) == ("settled", [])
    assert records_at(pair.standby) == list(range(11))
    assert batch_limit(pair.primary) != CLOSED


@pytest.mark.timeout(120)
def test_a_side_that_is_left_fenced_is_told_where_the_end_of_the_drain_cannot_be_recorded(pair: Pair) -> None:
    pair.begin(0)
    producer = open_transaction(pair.primary, 0)
    with begun("failover", pair.file) as command:
        assert command.stderr is not None
        assert any("primary is fenced: orders" in line for line in iter(command.stderr.readline, ""))
        require_replicas(pair.standby, CONTROL_TOPIC, 2)
        producer.commit_transaction(30)
        told = command.communicate(timeout=SECONDS)[1]
    assert "cluster 'standby': the switch cannot be recorded there" in told
    assert "orders is left on its way to standby (switching), and primary is fenced: run the same" in told
    require_replicas(pair.standby, CONTROL_TOPIC, 1)
    assert switch("failover", pair.file)["stage"] == "settled"


def test_what_came_from_a_topic_that_was_made_anew_and_does_not_go_back_is_told(pair: Pair) -> None:
    pair.begin(10)
    assert pair.running.stop() == 0
    delete_topic(pair.primary, TOPIC)
    create(pair.primary, TOPIC, 1)
    stays = "topic orders at primary was made anew: what had come from there to standby stays there alone"
    assert stays in switch("failover", pair.file, "--dry-run")["notes"]
    done = mirrormaker("failover", str(pair.file), "orders", seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    assert stays in done.stderr


@pytest.mark.timeout(120)
def test_a_rehearsal_tells_what_a_switch_does_where_a_topic_of_the_primary_was_made_anew(pair: Pair) -> None:
    pair.begin(10)
    pair.primary.kill_node(1)
    switch("failover", pair.file, "--force")
    produce(pair.standby, TOPIC, range(10, 15), 1)
    commit(pair.standby, "readers", TOPIC, 12)
    pair.primary.start_node(1)
    delete_topic(pair.primary, TOPIC)
    create(pair.primary, TOPIC, 1)
    rehearsed = switch("failback", pair.file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["records_missing"]) == (True, 5)
    (group,) = rehearsed["groups"]
    assert (group["at"], group["continues_at"], group["follows_copy"]) == (12, None, True)
    assert [note for note in rehearsed["notes"] if "topic orders at primary was made anew" in note]
    told = mirrormaker("failback", str(pair.file), "orders", "--dry-run").stdout
    goes_on = "goes on there with what it reads next here, once what is missing is copied"
    assert f"group readers: orders-0 at 12 {goes_on}\n" in told
    assert switch("failback", pair.file)["cluster"] == "primary"
    assert committed(pair.primary, "readers", TOPIC)[0] == 2
    assert records_at(pair.primary) == list(range(10, 15))


@pytest.mark.timeout(120)
def test_what_came_back_from_the_standby_is_not_told_as_missing_there_when_the_primary_is_lost(
    pair: Pair,
) -> None:
    pair.begin(50)
    switch("failover", pair.file)
    produce(pair.standby, TOPIC, range(50, 80), 1)
    wait_count(pair.primary, 80)
    switch("failback", pair.file)
    wait_states(pair.running, forth="running", back="standing by")
    kept = pair.file.parent / "data" / "daemon" / "ends.json"
    wait_until(lambda: json.loads(kept.read_text())["forth"][f"{TOPIC}-0"]["copied_to"] == 80, "looked at")
    pair.primary.kill_node(1)
    rehearsed = switch("failover", pair.file, "--dry-run")
    assert (rehearsed["planned"], rehearsed["records_missing"]) == (False, 0)
    (missing,) = rehearsed["partitions"]
    assert (missing["copied_to"], missing["end"]) == (80, 80)


def test_what_was_never_copied_of_a_primary_that_is_lost_is_told(pair: Pair) -> None:
    pair.prepare(range(50), sync={"topics": False})
    pair.running.start()
    wait_until(lambda: "orders is not copied" in status_text(pair.file), "an obstacle")
    pair.primary.kill_node(1)
    notes = switch("failover", pair.file, "--dry-run")["notes"]
    assert [note for note in notes if note.startswith("route forth: topic orders was not copied")]


@pytest.mark.timeout(120)
def test_a_side_that_is_left_takes_no_records_while_the_switch_is_under_way_and_a_switch_is_called_off(
    pair: Pair,
) -> None:
    pair.begin(10)
    file = pair.file
    producer = open_transaction(pair.primary, 10)
    with begun("failover", file) as interrupted:
        assert interrupted.stderr is not None
        assert "is fenced: orders" in interrupted.stderr.readline()
        interrupted.send_signal(signal.SIGINT)
        told = interrupted.communicate(timeout=PATIENCE_SECONDS)[1]
        assert (
            "left on its way to standby (draining), and primary is fenced: run the same command again" in told
        )
        assert (interrupted.returncode, "Traceback" in told) == (130, False)
    commit(pair.primary, "readers", TOPIC, 5)
    rehearsed = switch("failback", file, "--dry-run")
    assert (rehearsed["calls_off"], rehearsed["groups"], rehearsed["partitions"]) == (True, [], [])
    told = mirrormaker("failback", str(file), "orders", "--dry-run").stdout
    assert told == "orders: stays at primary, the switch to standby is called off\n"
    with begun("failover", file, "--timeout", "60") as first:
        assert first.stderr is not None
        assert "is fenced: orders" in first.stderr.readline()
        assert "is being switched to 'standby' by a command of" in refused("failover", file, "orders")
        assert switch("failback", file)["cluster"] == "primary"
        assert "was switched by another command meanwhile" in first.communicate(timeout=PATIENCE_SECONDS)[1]
    told = refused("failover", file, "orders", "--timeout", "2")
    assert "1 records of 1 partitions are still to be copied" in told
    assert f"({TOPIC}-0 at 10 of 11, behind an open transaction)" in told
    producer.produce(TOPIC, b"11", partition=0)
    producer.commit_transaction(30)
    assert switch("failover", file)["cluster"] == "standby"
    assert records_at(pair.standby) == list(range(12))


@pytest.mark.timeout(180)
def test_a_switch_whose_command_was_killed_is_told_with_what_is_fenced_and_what_ends_it(pair: Pair) -> None:
    (port,) = free_ports(1)
    pair.begin(10, options=("--http", str(port)))
    producer = open_transaction(pair.primary, 10)
    with begun("failover", pair.file, "--timeout", "60") as command:
        assert command.stderr is not None
        assert "is fenced: orders" in command.stderr.readline()
        wait_until(lambda: "primary is fenced, its topics refuse" in status_text(pair.file), "told as fenced")
        assert "run the same command again" not in status_text(pair.file)
        running, command_pid = pair.running, command.pid
        command.kill()

        def said() -> str:
            return next(line for line in status_text(pair.file).splitlines() if "failover group" in line)

        wait_until(lambda: "was killed" in said(), "told as killed")
    ends = (
        f"(process {command_pid} on {socket.gethostname()}) does not go on with that: it was killed, or"
        " hangs; run the same command again: mirrormaker failover FILE orders, or to call it off:"
        " mirrormaker failback FILE orders"
    )
    assert said().startswith("failover group orders: on its way to standby since ")
    assert "draining, by " in said()
    assert "; primary is fenced, its topics refuse producers: orders; a command of " in said()
    assert said().endswith(ends)
    metrics = ask(port, "/metrics")
    assert 'mirrormaker_failover_left{group="orders"} 1.0' in metrics
    assert 'mirrormaker_failover_fenced_topics{cluster="primary",group="orders"} 1.0' in metrics
    assert running.stop() == 0
    assert said().endswith(ends), "told by the clusters"
    running.start()
    producer.commit_transaction(30)
    assert switch("failover", pair.file)["problem"] is None
    wait_until(lambda: "refuse producers" not in status_text(pair.file), "that is over")
    assert 'mirrormaker_failover_left{group="orders"} 0.0' in ask(port, "/metrics")
