"""Damaged and arbitrary bytes at every decoder: a few inputs each; `make fuzz` has more."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import damaged
from tests.fuzz.targets import PEAK_BYTES, TARGETS, Target

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
SEEDS_MAX = 40
DEPTH = 1_200
"""More than the interpreter goes down."""


@each_target
def test_what_it_was_made_for_is_taken(target: Target) -> None:
    """Else the other tests would look at refusals only."""
    seeds = list(target.seeds())
    assert seeds
    taken = 0
    for seed in seeds[:SEEDS_MAX]:
        try:
            target.decode(seed)
        except target.refusals:
            continue
        taken += 1
    assert taken


@each_target
@few
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_taken_or_refused(target: Target, data: bytes) -> None:
    target.run(data)


@each_target
def test_damaged_bytes_are_taken_or_refused_in_bounded_memory(target: Target) -> None:
    random = Random(target.name)
    seeds = list(target.seeds())
    tracemalloc.start()
    try:
        for _ in range(30):
            target.run(damaged(random.choice(seeds), random))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES


@each_target
@pytest.mark.parametrize("nested", [b"[", b"{", b'{"a":', b"- ", b"a:\n ", b"(", b"&a [*a,"], ids=repr)
def test_deep_nesting_is_taken_or_refused(target: Target, nested: bytes) -> None:
    for data in (nested * DEPTH, b"\0" + nested * DEPTH, b"\0\0" + nested * DEPTH):
        target.run(data)
