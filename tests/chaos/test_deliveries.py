"""Mirrors of each delivery that are killed or frozen while records flow, and replaced by others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.embedded import EmbeddedCluster
from tests.chaos.conftest import CHAOS_SECONDS
from tests.chaos.disturbance import Disturbance
from tests.daemon.conftest import MirrorFactory, MirrorProcess, wait_until
from tests.daemon.killed_mirrors import SteadyWriter, create_topic, events, numbers_at

pytestmark = pytest.mark.timeout(CHAOS_SECONDS + 300)
AFTERMATH_SECONDS = 120.0


class Mirrors:
    """Two processes of one route; each may be killed, or frozen while the other takes over."""

    def __init__(self, source: EmbeddedCluster, destination: EmbeddedCluster, make: MirrorFactory, mode: str):
        self.processes = [make(source, destination, delivery=mode) for _ in range(2)]
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
    disturbance: Disturbance,
    mode: str,
) -> None:
    create_topic(node)
    mirrors = Mirrors(node, other_node, make, mode)
    with SteadyWriter(node) as writer:
        for _ in disturbance:
            mirrors.disturb(disturbance)
    wait_until(lambda: all(map(_is_idle, mirrors.processes)), "everything is copied", AFTERMATH_SECONDS)
    numbers, wanted = numbers_at(other_node), range(writer.written)
    assert numbers.keys() <= set(wanted)
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


def _is_idle(process: MirrorProcess) -> bool:
    told = process.status()
    return bool(told["lag"]) and told["lag"]["messages"] == 0
