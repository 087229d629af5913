"""Which steps may lose data, or are more than one would expect: those want `--force`, and no daemon takes
them by itself. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mirrormaker.plan.settings import CLEANUP, ORDERED, is_same, shrinks
from mirrormaker.plan.steps import (
    AddPartitions,
    AdoptTopic,
    ChangeSettings,
    CreateTopic,
    SettingChange,
    Step,
    TopicStep,
)

TOPICS_MAX = 100
PARTITIONS_MAX = 1000
"""A plan that makes more of them than this is a large one."""
UNCLEAN = "unclean.leader.election.enable"


def dangers_of(step: Step) -> tuple[str, ...]:
    """What the step may take away, each in a line; nothing for most."""
    match step:
        case ChangeSettings():
            return tuple(
                danger for name, change in step.changes.items() for danger in _dangers_of_change(name, change)
            )
        case AdoptTopic():
            return ("it holds records already, and the route has no position: copies are appended to them",)
    return ()


def told_dangers(step: Step) -> Iterator[str]:
    """The same, each with what it is about."""
    for danger in dangers_of(step):
        assert isinstance(step, ChangeSettings | AdoptTopic)
        yield f"{step.cluster}: topic {step.name}: {danger}"


def parted(step: TopicStep) -> tuple[TopicStep | None, TopicStep | None]:
    """What of the step takes nothing away, and what may. Only settings part."""
    if not isinstance(step, ChangeSettings):
        return (None, step) if dangers_of(step) else (step, None)
    risky = {name: change for name, change in step.changes.items() if any(_dangers_of_change(name, change))}
    harmless = {name: change for name, change in step.changes.items() if name not in risky}
    return (
        replace(step, changes=harmless) if harmless else None,
        replace(step, changes=risky) if risky else None,
    )


def large_parts(steps: Sequence[Step]) -> tuple[str, ...]:
    """Why a plan as a whole is larger than one would expect; nothing for most."""
    topics = sum(isinstance(step, CreateTopic) for step in steps)
    partitions = sum(_new_partitions(step) for step in steps)
    counted = ((topics, TOPICS_MAX, "topics"), (partitions, PARTITIONS_MAX, "partitions"))
    return tuple(
        f"it makes {count:,} {what}, more than {limit:,}" for count, limit, what in counted if count > limit
    )


def _new_partitions(step: Step) -> int:
    match step:
        case CreateTopic():
            return max(step.partitions, 1)
        case AddPartitions():
            return step.partitions - step.have
    return 0


def _dangers_of_change(name: str, change: SettingChange) -> Iterator[str]:
    if name == CLEANUP:
        if change.old is None or not is_same(name, change.new, change.old):
            yield f"{CLEANUP} {change.new} deletes what {change.old} keeps"
    elif name == UNCLEAN:
        if change.new == "true":
            yield f"{name} {change.old} -> true: records that are acknowledged may be lost"
    elif name in ORDERED and shrinks(change.new, change.old):
        yield f"{name} {change.old} -> {change.new}: {ORDERED[name]}"
