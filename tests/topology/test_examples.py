"""The shipped examples are valid, and use what they are there to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import Delivery, Topology

FOLDER = Path(__file__).parents[2] / "topologies"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
SHOWN = {
    "demo": lambda topology: len(topology.routes) == 3,
    "aggregate": lambda topology: topology.clusters["singapore"].security.tls,
    "active-active": lambda topology: all(route.provenance for route in topology.routes),
    "fan-out": lambda topology: (
        any(route.filters for route in topology.routes) and any(route.transforms for route in topology.routes)
    ),
    "hub-and-spoke": lambda topology: all(link.windows for link in topology.links),
    "chain": lambda topology: all(
        route.delivery is Delivery.EXACTLY_ONCE and not route.provenance for route in topology.routes
    ),
    "migration": lambda topology: topology.routes[0].sync.groups and topology.routes[0].sync.acls,
    "disaster-recovery": lambda topology: {route.failover_group for route in topology.routes} == {"orders"},
    "pipelines": lambda topology: len(topology.pipelines) == 3,
    "replicated": lambda topology: all(
        cluster.embedded.brokers == 3 for cluster in topology.clusters.values()
    ),
}


def test_there_are_no_others() -> None:
    assert {example.stem for example in EXAMPLES} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_is_valid_and_shows_what_it_is_there_for(name: str) -> None:
    topology: Topology = load_topology(FOLDER / f"{name}.yaml")
    assert SHOWN[name](topology)
    assert topology.data_dir.is_relative_to(FOLDER / "data")


def test_no_example_repeats_another_ones_state() -> None:
    texts = [example.read_text() for example in EXAMPLES]
    assert len({text.rpartition("data_dir:")[2] for text in texts}) == len(EXAMPLES)
