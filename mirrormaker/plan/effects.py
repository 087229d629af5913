"""What the topics of a cluster are like once steps are done, so that later parts of a plan build on earlier
ones. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, TopicStep
from mirrormaker.plan.world import ObservedSetting, ObservedTopic


def after(topics: Mapping[str, ObservedTopic], steps: Iterable[TopicStep]) -> dict[str, ObservedTopic]:
    """The topics after the steps."""
    changed = dict(topics)
    for step in steps:
        changed[step.name] = _after(changed.get(step.name), step)
    return changed


def _after(topic: ObservedTopic | None, step: TopicStep) -> ObservedTopic:
    match step:
        case CreateTopic():
            return ObservedTopic(
                name=step.name,
                partitions=max(step.partitions, 1),
                replication=max(step.replication_factor, 1),
                config=_own(step.config),
            )
        case AddPartitions():
            assert topic is not None, "only a topic that is there grows"
            return replace(topic, partitions=step.partitions)
        case ChangeSettings():
            assert topic is not None, "only a topic that is there has settings"
            changes = {name: change.new for name, change in step.changes.items()}
            return replace(topic, config={**topic.config, **_own(changes)})


def _own(settings: Mapping[str, str]) -> dict[str, ObservedSetting]:
    return {name: ObservedSetting(value=value, own=True) for name, value in settings.items()}
