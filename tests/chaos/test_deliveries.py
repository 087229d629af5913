"""Mirrors of each delivery that are killed or frozen while records flow, and replaced by others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Position

from broker.embedded import EmbeddedCluster
from tests.chaos.conftest import LONG_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.daemon.audits import audit, found
from tests.daemon.conftest import MirrorFactory, MirrorProcess, wait_until
from tests.daemon.killed_mirrors import (
    COPY,
    TOPIC,
    SteadyWriter,
    commit,
    committed,
    create_topic,
    events,
    numbers_at,
    places_at,
)
from tests.daemon.test_ledger import ledgers_at

pytestmark = pytest.mark.timeout(LONG_SECONDS + 2100)
AFTERMATH_SECONDS = 120.0
AUDIT_SECONDS = 900.0
READERS = "readers"
CHECKED = 100_000
"""Records of a partition, about, whose translation is looked at."""


class Mirrors:
    """Two processes of one route; each may be killed, or frozen while the other takes over."""

    def __init__(self, source: EmbeddedCluster, destination: EmbeddedCluster, make: MirrorFactory, mode: str):
        sync = {"groups": {"include": [READERS], "interval_ms": 500}}
        self.processes = [make(source, destination, delivery=mode, sync=sync) for _ in range(2)]
        for process in self.processes:
            process.start()

    def disturb(self, disturbance: Disturbance) -> None:
        """Break one of them."""
        chosen = disturbance.chance.choice(self.processes)
        if disturbance.chance.random() < 0.3:
            assert chosen.process is not None
            disturbance.freeze(chosen.process.pid, 1.0, 15.0)
        else:
            chosen.kill()
            chosen.start()

    def told(self, event: str) -> list[dict[str, int]]:
        """What both logged under a name."""
        return [each for process in self.processes for each in events(process, event)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MirrorFactory]:
    """Mirrors that end with the scenario."""
    with ExitStack() as stack:
        yield MirrorFactory(tmp_path, stack)


@pytest.mark.parametrize("mode", ["at_least_once", "exactly_once", "at_most_once"])
def test_what_each_delivery_says_holds_whatever_happens_to_the_mirrors(
    node: EmbeddedCluster,
    other_node: EmbeddedCluster,
    make: MirrorFactory,
    chance: random.Random,
    mode: str,
) -> None:
    create_topic(node)
    disturbance = Disturbance(chance, seconds=LONG_SECONDS)
    mirrors = Mirrors(node, other_node, make, mode)
    with SteadyWriter(node) as writer:
        for _ in disturbance:
            mirrors.disturb(disturbance)
    wait_until(lambda: all(map(_is_idle, mirrors.processes)), "everything is copied", AFTERMATH_SECONDS)
    numbers, wanted = numbers_at(other_node), range(writer.written)
    assert numbers.keys() <= set(wanted)
    if mode == "exactly_once":
        assert_ledger_is_exact(node, other_node)
        assert_groups_are_carried(node, other_node)
    match mode:
        case "exactly_once":
            assert numbers == Counter(wanted)
        case "at_least_once":
            assert numbers.keys() == set(wanted)
        case _:
            assert set(numbers.values()) == {1}
            assert len(wanted) - len(numbers) <= sum(
                each["count"] for each in mirrors.told("records_maybe_lost")
            )
    for options in (["--deep"], []):
        assert_audit_agrees(mirrors.processes[0].file, options, writer.written, numbers)


def assert_audit_agrees(file: Path, options: list[str], written: int, numbers: Counter[int]) -> None:
    """The audit finds no difference, and tells of what is lost or there twice just as much as there is."""
    code, route = audit(file, *options, seconds=AUDIT_SECONDS)
    assert (code, found(route)) == (0, []), (options, route["outcomes"], found(route)[:20])
    told = {name: route["outcomes"].get(name, 0) for name in ("repeated", "lost", "pending", "unrecorded")}
    assert told == {
        "repeated": numbers.total() - len(numbers),
        "lost": written - len(numbers),
        "pending": 0,
        "unrecorded": 0,
    }, (options, route)
    assert route["equal"] == len(numbers)


def assert_ledger_is_exact(source: EmbeddedCluster, destination: EmbeddedCluster) -> None:
    """Offsets of the source are translated to where their records are."""
    here, there = places_at(source, TOPIC), places_at(destination, COPY)

    def is_told() -> bool:
        ledgers = ledgers_at(destination)
        return all(ledgers[number].next == max(here[number]) + 1 for number in here)

    wait_until(is_told, "the ledger tells of everything", AFTERMATH_SECONDS)
    ledgers = ledgers_at(destination)
    for partition, records in here.items():
        for offset in sorted(records)[:: len(records) // CHECKED + 1]:
            value = records[offset]
            told = ledgers[partition].forward(offset)
            assert told.is_exact, (partition, offset, told)
            assert told.offset is not None
            assert there[partition].get(told.offset) == value, (partition, offset, told)


def assert_groups_are_carried(source: EmbeddedCluster, destination: EmbeddedCluster) -> None:
    """A group that has read half of each partition has done so at the other side too."""
    here, there = places_at(source, TOPIC), places_at(destination, COPY)
    half = {partition: sorted(records)[len(records) // 2] for partition, records in here.items()}
    commit(source, READERS, {Position(TOPIC, each, offset) for each, offset in half.items()})
    wanted = {partition: here[partition][offset] for partition, offset in half.items()}

    def is_carried() -> bool:
        at = committed(destination, READERS, COPY, list(half))
        return {each: there[each].get(offset) for each, offset in at.items()} == wanted

    wait_until(is_carried, "the group is carried", AFTERMATH_SECONDS)


def _is_idle(process: MirrorProcess) -> bool:
    told = process.status()
    return bool(told["lag"]) and told["lag"]["messages"] == 0
