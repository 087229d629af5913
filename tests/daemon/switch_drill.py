"""A failover group that is switched there and back while records are written and read where it is at work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as Position

from tests.client.reading_members import Brokers
from tests.daemon.conftest import MirrorProcess, mirrormaker, wait_until
from tests.daemon.failover_pair import KILLED, SECONDS, TOPIC, kill_at_write, wait_count
from tests.daemon.test_carried_groups import read
from tests.daemon.test_mirror import address, produce

SIDES = {"failover": "standby", "failback": "primary"}


class Drill:
    """A group that is switched there and back while records are written and read where it is at work."""

    def __init__(self, clusters: Mapping[str, Brokers], running: MirrorProcess) -> None:
        self.clusters = clusters
        self.file = running.file
        self.at = "primary"
        self.written = 0
        self.left: set[int] = set()
        """Numbers that are at the primary alone, as was decided."""
        self.had: list[int] = []

    def begin(self) -> None:
        """A daemon is at work."""
        self.write(1)
        wait_count(self.clusters["standby"], 1)

    def switch(self, verb: str, kill_at: int) -> bool:
        """Switch, killed at one of the writes and run again; whether it was killed."""
        self.write(6)
        self.read(4)
        killed = self.command(verb, kill_at)
        self.read(self.written - len(self.had))
        assert self.had == list(range(self.written))
        return killed

    def command(self, verb: str, kill_at: int, *options: str, stage: str = "settled") -> bool:
        """Killed at one of its writes and run again; whether it was killed."""
        killed = kill_at_write(kill_at, verb, self.file, *options)
        again = mirrormaker(
            verb, str(self.file), "orders", "--output", "json", *options, "--timeout", "30", seconds=SECONDS
        )
        where = f"{verb} {killed.stderr}{again.stderr}"
        if again.returncode:
            assert f"is at {SIDES[verb]!r} already" in again.stderr, where
        else:
            told = json.loads(again.stdout)
            assert (told["cluster"], told["stage"], told["fenced"]) == (SIDES[verb], stage, []), where
        self.at = SIDES[verb]
        return killed.returncode == KILLED

    def write(self, count: int) -> None:
        """At the side that is at work."""
        produce(self.clusters[self.at], TOPIC, range(self.written, self.written + count), 1)
        self.written += count

    def read(self, count: int) -> None:
        """The same, by the group."""
        start = None if self.had else 0
        self.had += read(self.clusters[self.at], "readers", TOPIC, count, start=start)

    def end(self) -> None:
        """Both sides have every record once."""
        self.wait_whole()
        for name, each in self.clusters.items():
            assert all_at(each) == self.wanted(name)

    def wanted(self, name: str) -> list[int]:
        """The numbers that are to be at a side."""
        left = self.left if name == "standby" else set()
        return [number for number in range(self.written) if number not in left]

    def wait_whole(self) -> None:
        """Until both sides have as many records as they are to have."""
        for name, each in self.clusters.items():
            wait_until(partial(self._is_whole, name, each), f"everything is at {name}")

    def _is_whole(self, name: str, cluster: Brokers) -> bool:
        return len(all_at(cluster)) >= len(self.wanted(name))


def all_at(cluster: Brokers) -> list[int]:
    """The numbers that readers of committed records find."""
    reader = Consumer(
        {
            "bootstrap.servers": address(cluster),
            "group.id": "all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[int] = []
    try:
        reader.assign([Position(TOPIC, 0, 0)])
        while True:
            for message in reader.consume(1_000, 0.5):
                error = message.error()
                if error is None:
                    found.append(int(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise AssertionError(error)
    finally:
        reader.close()
