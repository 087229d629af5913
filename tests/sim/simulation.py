"""One seed from beginning to end, and what came of it."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TextIO

import structlog

from tests.sim.loop import PROCESS, SimulationError
from tests.sim.scenario import Scenario
from tests.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run: `failure` is empty when all was well. `digest` is of every step that was made."""

    seed: int
    failure: str
    seconds: float
    """On the run's own clock."""
    steps: int
    batches: int
    """That were committed."""
    digest: int
    options: str = ""
    """With which the seed has to be run to be the same."""

    def __str__(self) -> str:
        what = self.failure or "well"
        return (
            f"{what} ({self.steps} steps, {self.seconds:.0f} s, {self.batches} batches, {self.digest:08x}); "
            f"again: python -m tests.sim --seed {self.seed} {self.options}--trace"
        )


def with_transactions(seed: int) -> Scenario:
    """What the seed decides, with two transactional clients."""
    return replace(Scenario.drawn(Random(f"world {seed}")), desks=2)


def run_seed(seed: int, *, scenario: Scenario | None = None, trace: TextIO | None = None) -> Outcome:
    """Run a whole world; `trace` gets a line for everything that happens."""
    note = None
    if trace is not None:

        def note(time: float, who: str, what: str) -> None:
            print(f"{time - 1000:9.4f} {who:12} {what}", file=trace)

    world = World(seed, scenario, note=note)
    failure = ""
    if trace is not None:
        print(world.scenario, file=trace)
    with _logs_told_to(world if trace is not None else None), _without_collection():
        try:
            world.run()
        except SimulationError as error:
            failure = f"{type(error).__name__}: {error}"
    return Outcome(
        seed=seed,
        failure=failure,
        seconds=world.loop.time() - 1_000,
        steps=world.loop.steps,
        batches=world.checks.batches_seen,
        digest=world.loop.digest,
        options="--transactions " if world.scenario.desks else "",
    )


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Objects of dead processes go at a moment that is the same at every run: at the end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _logs_told_to(world: World | None) -> Iterator[None]:
    """What nodes log goes to the trace, or nowhere."""
    before = structlog.get_config()

    def tell(_: object, method: str, event: dict[str, Any]) -> str:
        if world is None:
            raise structlog.DropEvent
        text = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("event", "component"))
        process = PROCESS.get(world.loop.root)
        world.note(process.name, f"{event.get('component')} {event['event']} {text}")
        raise structlog.DropEvent

    level = logging.CRITICAL if world is None else logging.DEBUG
    structlog.configure(
        processors=[tell],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.configure(**before)
