"""Takes steps about the topics of one cluster; each can be taken again without harm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.client.admin import Admin, NewTopic
from broker.errors import ErrorCode, ProtocolError
from mirrormaker.plan.steps import AddPartitions, ChangeSettings, CreateTopic, Step, TopicStep

STEPS_A_REQUEST = 100
StepType = TypeVar("StepType", bound=Step)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(Generic[StepType]):
    """What came of a step."""

    step: StepType
    error: str | None
    """None when it is done."""
    code: ErrorCode | None = None
    """The cluster's, where there is an error, or where it was done already."""

    @property
    def is_own(self) -> bool:
        """Whether it was done, and by this."""
        return self.error is None and self.code is None


async def take_topic_steps(admin: Admin, steps: Sequence[TopicStep]) -> list[StepResult[TopicStep]]:
    """Take the steps: creations first, then growth, then settings. Each succeeds or fails by itself.

    Raises ConnectionFailedError and RequestTimedOutError when nobody answers in time.
    """
    results: list[StepResult[TopicStep]] = []
    creations = [step for step in steps if isinstance(step, CreateTopic)]
    for some in _portions(creations):
        made = await admin.create_topics([_new_topic(step) for step in some])
        results += [_result(step, made.get(step.name)) for step in some]
    growths = [step for step in steps if isinstance(step, AddPartitions)]
    for few in _portions(growths):
        grown = await admin.create_partitions({step.name: step.partitions for step in few})
        results += [_result(step, grown.get(step.name)) for step in few]
    for step in steps:
        if isinstance(step, ChangeSettings):
            results.append(_result(step, await _change_settings(admin, step)))
    return results


async def _change_settings(admin: Admin, step: ChangeSettings) -> ProtocolError | None:
    try:
        await admin.alter_topic_configs(
            step.name, {name: change.new for name, change in step.changes.items()}
        )
    except ProtocolError as error:
        return error
    return None


def _new_topic(step: CreateTopic) -> NewTopic:
    return NewTopic(
        name=step.name,
        partitions=step.partitions,
        replication_factor=step.replication_factor,
        configs=step.config,
    )


def _result(step: StepType, error: ProtocolError | None) -> StepResult[StepType]:
    """Somebody else's having done it is no failure."""
    if error is None or error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return StepResult(step=step, error=None, code=None if error is None else error.code)
    return StepResult(step=step, error=str(error), code=error.code)


def _portions(steps: Sequence[StepType]) -> Iterable[Sequence[StepType]]:
    return (steps[start : start + STEPS_A_REQUEST] for start in range(0, len(steps), STEPS_A_REQUEST))
