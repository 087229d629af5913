"""Drills: the side of a failover group that is at work is switched, and killed, while it is written to and
read; it comes back with records of its own; and everything is accounted for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from broker.embedded import EmbeddedCluster, EmbeddedZooKeeper
from tests.chaos.conftest import CHAOS_SECONDS, NODE_SETTINGS
from tests.chaos.disturbance import Disturbance
from tests.chaos.shop import GROUP, Ledger, Reader, Writer
from tests.conftest import cluster_spec
from tests.daemon.conftest import MirrorFactory, MirrorProcess, wait_until
from tests.daemon.killed_mirrors import PARTITIONS, TOPIC, address, places_at

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 600)
COMMAND_SECONDS = 120.0
NODES = 2
BRIEF, LONG = (0.5, 2.0), (1.0, 4.0)


class Drill:
    """Two clusters, a daemon, and what was written and read at either side."""

    def __init__(
        self, clusters: dict[str, EmbeddedCluster], running: MirrorProcess, disturbance: Disturbance
    ):
        self.clusters = clusters
        self.running = running
        self.disturbance = disturbance
        self.at = "primary"
        self.ledger = Ledger()
        self.had: Counter[int] = Counter()
        self.may_repeat: set[int] = set()
        """Numbers that the group has read again, as was told."""
        self.told_again = 0
        self.left: set[int] = set()
        """Numbers that were reported, and stay at one side."""

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """At the side that is at work."""
        here = self.clusters[self.at]
        with Reader(here, self.had), Writer(here, self.ledger):
            self.disturbance.pause(*LONG)
            yield

    @contextmanager
    def reading_again(self, groups: list[dict[str, Any]]) -> Iterator[None]:
        """What the group reads again is no more than was told of it, now and before."""
        self.told_again += sum(each["read_again"] or 0 for each in groups)
        yield
        again = self.had.total() - len(self.had)
        assert again <= self.told_again
        self.may_repeat = {number for number, times in self.had.items() if times > 1}

    def told(self, verb: str, *options: str) -> dict[str, Any]:
        done = self.command(verb, "--output", "json", *options)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def command(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        target = ("orders",) if verb.startswith("fail") else ()
        command = [sys.executable, "-m", "mirrormaker.cli", verb, str(self.running.file), *target, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)

    def switch(self, verb: str, to: str, *options: str) -> dict[str, Any]:
        """Planned, with writers that only notice when they are refused; readers end before."""
        with Writer(self.clusters[self.at], self.ledger):
            self.disturbance.pause(*BRIEF)
            told = self.told(verb, "--timeout", "60", *options)
        assert (told["cluster"], told["stage"], told["fenced"]) == (to, "settled", [])
        self.at = to
        return told

    def lose_primary(self) -> dict[str, Any]:
        """Under load; what the switch told of it."""
        primary = self.clusters["primary"]
        with self.traffic():
            for number in range(1, NODES + 1):
                primary.kill_node(number)
        told = self.told("failover", "--force")
        assert (told["cluster"], told["stage"], told["forced"]) == ("standby", "away", True)
        self.at = "standby"
        rehearsed: dict[str, Any] = told["rehearsal"]
        return rehearsed

    def numbers_at(self, name: str) -> dict[int, dict[int, int]]:
        return places_at(self.clusters[name], TOPIC)

    def wait_copied(self) -> None:
        """Until both sides have the same numbers, but for those that are left at one."""

        def is_copied() -> bool:
            here, there = (counted(self.numbers_at(name)) for name in self.clusters)
            return here.keys() - self.left == there.keys() - self.left

        wait_until(is_copied, "both sides have the same", COMMAND_SECONDS)

    def wait_read(self) -> None:
        """Until the group has read everything that is at the side where it is."""
        wanted = counted(self.numbers_at(self.at)).keys() - self.left

        def is_read() -> bool:
            return wanted <= self.had.keys()

        with Reader(self.clusters[self.at], self.had):
            wait_until(
                is_read, f"everything is read: {len(wanted - self.had.keys())} are not", COMMAND_SECONDS
            )


def counted(places: dict[int, dict[int, int]]) -> Counter[int]:
    """How often each number is there."""
    return Counter(number for records in places.values() for number in records.values())


@pytest.fixture
def drill(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, disturbance: Disturbance) -> Iterator[Drill]:
    """At the primary, with its daemon at work."""
    with ExitStack() as stack:
        clusters = {
            name: stack.enter_context(
                EmbeddedCluster(
                    cluster_spec(own_zookeeper, tmp_path, name, brokers=brokers, settings=NODE_SETTINGS)
                )
            )
            for name, brokers in (("primary", NODES), ("standby", 1))
        }
        admin = AdminClient({"bootstrap.servers": address(clusters["primary"])})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, NODES)]).values():
            created.result(30)
        running = MirrorFactory(tmp_path, stack).of_file(topology(tmp_path, clusters))
        running.start()
        running.wait_for(lambda told: bool(told["partitions"]), "the daemon is at work")
        yield Drill(clusters, running, disturbance)
        assert running.stop() == 0


def topology(folder: Path, clusters: dict[str, EmbeddedCluster]) -> Path:
    topics = {"include": [TOPIC], "name": "{topic}"}
    document = {
        "clusters": {
            name: {"bootstrap": [str(each) for each in cluster.bootstrap]}
            for name, cluster in clusters.items()
        },
        "defaults": {
            "failover_group": "orders",
            "heartbeats": False,
            "refresh_interval_ms": 300,
            "commit_interval_ms": 200,
            "sync": {"groups": {"include": [GROUP], "interval_ms": 200}},
        },
        "routes": [
            {"name": "forth", "from": "primary", "to": "standby", "topics": topics},
            {"name": "back", "from": "standby", "to": "primary", "topics": topics, "enabled": False},
        ],
        "data_dir": "data",
    }
    file = folder / "recovery.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_group_whose_primary_is_switched_lost_and_found_accounts_for_every_record(drill: Drill) -> None:
    for _ in drill.disturbance:
        with drill.traffic():
            pass
        drill.switch("failover", "standby")
        with drill.traffic():
            pass
        drill.switch("failback", "primary")
        assert not [n for n, times in drill.had.items() if times > 1 and n not in drill.may_repeat]

        rehearsed = drill.lose_primary()
        lost = numbers_lost(drill, rehearsed)
        with drill.reading_again(rehearsed["groups"]), drill.traffic():
            pass
        for number in range(1, NODES + 1):
            drill.clusters["primary"].start_node(number)
        late = write_late(drill)
        tail = find_tail(drill, lost | late)
        choice = drill.disturbance.chance.choice(["copy", "report"])
        if choice == "report":
            drill.left |= tail
        told = drill.switch("failback", "primary", "--tail", choice)
        with drill.reading_again(told["groups"]):
            drill.wait_copied()
            drill.wait_read()
    check(drill)


def numbers_lost(drill: Drill, rehearsed: dict[str, Any]) -> set[int]:
    """Numbers that were acknowledged at the primary and are not at the standby: no more than was told."""
    there = counted(drill.numbers_at("standby"))
    copied = {each["partition"]: each["copied_to"] or 0 for each in rehearsed["partitions"]}
    lost = {number for number in drill.ledger.acknowledged if number not in there} - drill.left
    for number in lost:
        partition, offset = drill.ledger.acknowledged[number]
        assert offset >= copied[partition], (number, partition, offset, copied)
    return lost


def write_late(drill: Drill) -> set[int]:
    """By somebody who has not heard that the primary was left."""
    first = drill.ledger.next
    with Writer(drill.clusters["primary"], drill.ledger):
        drill.disturbance.pause(*BRIEF)
    return {number for number in drill.ledger.acknowledged if number >= first}


def find_tail(drill: Drill, wanted: set[int]) -> set[int]:
    """What the command tells of the primary's own records: these, and such as were in doubt."""
    wait_until(lambda: told_by_daemon(drill) > 0, "the daemon says that the primary is back, with a tail")
    refused = drill.command("failover")
    assert (refused.returncode, refused.stdout) == (1, ""), refused
    assert "primary has records that never came to the other side" in refused.stderr
    here, there = (counted(drill.numbers_at(name)) for name in ("primary", "standby"))
    tail = here.keys() - there.keys() - drill.left
    assert wanted <= tail <= wanted | drill.ledger.in_doubt
    for partition, records in drill.numbers_at("primary").items():
        offsets = [offset for offset, number in records.items() if number in tail]
        if offsets:
            told = f"-{partition}: {len(offsets):,} records, offsets {min(offsets)} to {max(offsets)}"
            assert told in refused.stderr
    wait_until(lambda: told_by_daemon(drill) == len(tail), "the daemon has found all of it")
    return tail


def told_by_daemon(drill: Drill) -> int:
    """Records that it found at the primary alone."""
    told = json.loads(drill.command("status", "--output", "json").stdout)["failover_groups"]["orders"]
    return int(told["tail_records"]) if told["idle"] == "primary" else 0


def check(drill: Drill) -> None:
    """Both sides have every record once but for what was reported, and the group has read it."""
    primary, standby = (counted(drill.numbers_at(name)) for name in ("primary", "standby"))
    assert set(primary.values()) == set(standby.values()) == {1}
    acknowledged = drill.ledger.acknowledged.keys()
    assert acknowledged <= primary.keys() <= acknowledged | drill.ledger.in_doubt
    assert primary.keys() - standby.keys() == drill.left
    assert standby.keys() <= primary.keys()
    assert primary.keys() - drill.left <= drill.had.keys()
    assert {number for number, times in drill.had.items() if times > 1} <= drill.may_repeat
    for options in ((), ("--deep",)):
        audited = drill.command("audit", *options)
        assert audited.returncode == 0, audited.stdout + audited.stderr
