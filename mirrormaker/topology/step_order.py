"""The steps of a pipeline as a graph without circles: what reads what, and in which order they can be done.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from mirrormaker.topology.model import RECORDS, PipelineSpec, SinkSpec, StepSpec


class StepCircleError(ValueError):
    """Steps that wait for one another; `names` is one circle of them, its first standing last too."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(" <- ".join(names))
        self.names = list(names)


def inputs_of(steps: Sequence[StepSpec]) -> Mapping[str, tuple[str, ...]]:
    """What each step reads, by name: what it says, or else the step before it, or else the records."""
    before = RECORDS
    found: dict[str, tuple[str, ...]] = {}
    for step in steps:
        found[step.name] = step.inputs or (before,)
        before = step.name
    return found


def source_of(sink: SinkSpec, steps: Sequence[StepSpec]) -> str:
    """The step, or `records`, whose rows a sink takes."""
    return sink.source or (steps[-1].name if steps else RECORDS)


def order_steps(steps: Sequence[StepSpec]) -> list[StepSpec]:
    """The steps so that each comes after those that it reads. Raises StepCircleError."""
    by_name = {step.name: step for step in steps}
    reads = {name: [each for each in names if each in by_name] for name, names in inputs_of(steps).items()}
    try:
        return [by_name[name] for name in TopologicalSorter(reads).static_order()]
    except CycleError as error:
        raise StepCircleError(list(reversed(error.args[1]))) from error


def used_names(pipeline: PipelineSpec) -> set[str]:
    """Everything that leads to a sink."""
    reads = inputs_of(pipeline.steps)
    used: set[str] = set()
    waiting = [source_of(sink, pipeline.steps) for sink in pipeline.sinks]
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += reads.get(name, ())
    return used
