"""What goes on at the topics of a cluster: a writer each, a group that reads along and a watcher."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.load import (
    Follower,
    NotInTimeError,
    Writer,
    assert_seen_is_there,
    assert_written_once_and_in_order,
    create_topic,
    read_all,
    wait_until,
)
from tests.chaos.watcher import Watcher

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_SECOND = 400


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes on at one topic."""

    topic: str
    writer: Writer
    follower: Follower
    watcher: Watcher

    def wait_for_more(self) -> None:
        """Wait until the writer goes on. Raises NotInTimeError."""
        writer = self.writer
        count = writer.acknowledged_count
        wait_until(
            lambda: bool(writer.failures) or writer.acknowledged_count > count,
            f"{self.topic} is written again",
        )
        assert not writer.failures, writer.failures[:3]

    def wait_until_arrived(self) -> None:
        """Wait until both readers have met everything that was acknowledged. Raises NotInTimeError."""
        acknowledged = self.writer.acknowledged
        try:
            wait_until(lambda: self.watcher.has_seen(acknowledged), f"{self.topic} is read")
            wait_until(lambda: self.follower.has_seen(acknowledged), f"{self.topic} is read by the group")
        except NotInTimeError as error:
            watched, read = self.watcher.seen, self.follower.seen
            counts = {
                partition: (len(records), len(watched[partition]), len(read[partition]))
                for partition, records in sorted(acknowledged.items())
            }
            raise NotInTimeError(f"{error}; acknowledged, watched, read by the group: {counts}") from error

    def check(self, bootstrap: str) -> None:
        """What can be read now is what was acknowledged and what both readers have met."""
        placed = read_all(bootstrap, self.topic)
        assert_written_once_and_in_order(self.writer.acknowledged, placed)
        assert_seen_is_there(self.follower.seen, placed)
        self.watcher.assert_saw(placed)


@contextlib.contextmanager
def traffic_at(
    bootstrap: str, topics: Mapping[str, Mapping[str, str]], chance: Random, *, replicas: int, logs: Path
) -> Iterator[list[Traffic]]:
    """Topics with these settings, which are read along; whoever starts the writers stops them within.

    What the writers say lies in `logs`.
    """
    with contextlib.ExitStack() as readers:
        traffics = []
        for topic, config in topics.items():
            create_topic(bootstrap, topic, config, replicas=replicas)
            codec = chance.choice(CODECS)
            traffic = Traffic(
                topic=topic,
                writer=Writer(
                    bootstrap,
                    topic,
                    codec=codec,
                    records_per_second=RECORDS_PER_SECOND,
                    log=logs / f"writer-{topic}.log",
                ),
                follower=Follower(bootstrap, topic, f"readers of {topic}"),
                watcher=Watcher(bootstrap, topic),
            )
            readers.enter_context(traffic.follower)
            readers.enter_context(traffic.watcher)
            traffics.append(traffic)
        yield traffics
