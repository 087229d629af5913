"""Topology files made in tests, and what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import ConfigurationError
from mirrormaker.topology.loader import load_topology
from mirrormaker.topology.model import RouteSpec, Topology

CLUSTERS = 'clusters: {a: {bootstrap: ["a:1"]}, b: {bootstrap: ["b:1"]}, c: {bootstrap: ["c:1"]}}\n'


def load(folder: Path, text: str) -> Topology:
    """The topology that `text` says."""
    file = folder / "topology.yaml"
    file.write_text(text)
    return load_topology(file)


def load_route(folder: Path, keys: str, *, before: str = "") -> RouteSpec:
    """A route from `a` to `b` with these keys, in flow style; `before` are lines of the top level."""
    topics = "" if keys.startswith("topics:") else "topics: {include: [x]}, "
    return load(folder, f"{CLUSTERS}{before}routes:\n  - {{from: a, to: b, {topics}{keys}}}\n").routes[0]


def problems_of(folder: Path, text: str) -> list[str]:
    """Complaints without the file's name: `LINE: PATH: MESSAGE`."""
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text)
    return [
        problem.removeprefix(f"{folder / 'topology.yaml'}").removeprefix(":")
        for problem in caught.value.problems
    ]


def problem_of_route(folder: Path, keys: str, *, before: str = "") -> str:
    """The one complaint about a route from `a` to `b` with these keys, without its line and number."""
    topics = "" if keys.startswith("topics:") else "topics: {include: [x]}, "
    text = f"{CLUSTERS}{before}routes:\n  - {{from: a, to: b, {topics}{keys}}}\n"
    (problem,) = problems_of(folder, text)
    _, _, told = problem.partition(": ")
    return told.removeprefix("routes[0].")
