"""Steps about one topic, as the drafts of a plan make them, as the one that leads to the same end. Pure.

A draft sees what the one before leaves behind, and may take back what that did: the copy at the end of a
chain follows the one in the middle, which is to change itself. What is only on the way is not done: it could
lose data that the end keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mirrormaker.plan.settings import is_same
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, SettingChange, Step


def joined(steps: Iterable[Step]) -> list[Step]:
    """The steps, each where the first about its topic and of its kind stands."""
    found: dict[object, Step] = {}
    for step in steps:
        match step:
            case CreateTopic():
                found[CreateTopic, step.cluster, step.name] = step
            case AddPartitions() | ChangeSettings():
                created = found.get((CreateTopic, step.cluster, step.name))
                key = (CreateTopic if created is not None else type(step), step.cluster, step.name)
                found[key] = _after(found.get(key), step)
            case _:
                found[step] = step
    return [step for step in found.values() if not (isinstance(step, ChangeSettings) and not step.changes)]


def _after(first: Step | None, then: AddPartitions | ChangeSettings) -> Step:
    match first, then:
        case CreateTopic(), AddPartitions():
            return replace(first, partitions=then.partitions)
        case CreateTopic(), ChangeSettings():
            new = {name: change.new for name, change in then.changes.items()}
            return replace(first, config={**first.config, **new})
        case AddPartitions(), AddPartitions():
            return replace(first, partitions=then.partitions)
        case ChangeSettings(), ChangeSettings():
            return replace(first, changes=_changed(first.changes, then.changes))
    return then


def _changed(
    first: Mapping[str, SettingChange], then: Mapping[str, SettingChange]
) -> dict[str, SettingChange]:
    both = {
        name: SettingChange(old=first[name].old if name in first else change.old, new=change.new)
        for name, change in then.items()
    }
    return {
        name: change
        for name, change in sorted({**first, **both}.items())
        if change.old is None or not is_same(name, change.new, change.old)
    }
